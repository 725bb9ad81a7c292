"""The front of ``python -m specdec_lab measure``: runs a part, prints its table and records it.

A part is a module of this package with four functions:

* ``settings(quick)``: how much is measured, as JSON knows it;
* ``cells(target, settings)``: the units that are timed together, each a name and a function that
  runs it and returns a dict for JSON; loading what they need is done here;
* ``summary(settings, results)``: the data to record, from the results of all cells by name;
* ``table(data)``: that data for the reader's eye.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from specdec_lab.study import recordings
from specdec_lab.study.measure.sittings import Say, Sittings
from specdec_lab.study.measurements import FOLDER, machine_name

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

PARTS = ("cost", "decode", "acceptance", "batch", "peers", "proposers", "outside")


def run(part: str, quick: bool = False, device: str = "cpu", say: Say = print) -> Path | None:
    """Measure a part, print its table and record it; returns the file, None if none was written.

    What an earlier run finished under the same settings is used, see `Sittings`. A rough answer
    (``quick``) never takes the place of a whole recording: then it is only printed.
    """
    from specdec_lab.decoding.checkpoint import load_target

    target = load_target(device=device)
    return measure(module_of(part), part, target, quick, say)


def measure(module: ModuleType, part: str, target: Target, quick: bool, say: Say) -> Path | None:
    """As `run`, for any module with the functions of a part and any target."""
    settings = module.settings(quick)
    folder = f"{FOLDER}/{machine_name(target.device)}"
    path = recordings.output_folder(folder) / f"{part}.json"
    unfinished = path.with_suffix(".quick.partial" if quick else ".partial")
    sittings = Sittings(unfinished, settings | _circumstances(target), say)
    results = sittings.run(module.cells(target, settings), part)
    data = module.summary(settings, results) | {"quick": quick}
    say(module.table(data))
    if not quick or not _holds_a_whole_one(path):
        facts = _facts(part, quick, target, sittings.number)
        recordings.save(part, data, folder=folder, **facts)
    else:
        say(f"{path} holds a whole measurement and is left alone.")
        path = None
    sittings.clear()
    return path


def module_of(part: str) -> ModuleType:
    """The module of a part by name; ValueError for another name."""
    if part not in PARTS:
        raise ValueError(f"there is no part {part!r} to measure; use {', '.join(PARTS)} or all")
    return importlib.import_module(f"specdec_lab.study.measure.{part}")


def _circumstances(target: Target) -> dict[str, object]:
    """All but the part's own settings that a result depends on."""
    return {
        "model": target.name,
        "dtype": str(target.dtype),
        "threads": torch.get_num_threads(),
        "versions": recordings.provenance()["versions"],
    }


def _holds_a_whole_one(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        return not json.loads(path.read_text(encoding="utf-8"))["data"].get("quick", False)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged; delete it and measure again.") from error


def _facts(part: str, quick: bool, target: Target, sittings: int) -> dict[str, object]:
    """What a recording says about its origin, besides machine, versions and date."""
    options = " --quick" * quick
    options += "" if target.device.type == "cpu" else f" --device {target.device.type}"
    facts = _circumstances(target)
    return {
        "command": f"python -m specdec_lab measure {part}{options}",
        "commit": _commit(),
        "model": facts["model"],
        "dtype": facts["dtype"],
        "threads": facts["threads"],
        "sittings": sittings,
    }


def _commit() -> str | None:
    """The commit of the checkout, with "+" if the package has changed since; None without one."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("diff", "--quiet", "HEAD", "--", "specdec_lab").returncode
    except OSError:
        return None
    return None if head.returncode else head.stdout.strip() + "+" * bool(changed)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(recordings.PROJECT), *words]
    return subprocess.run(command, capture_output=True, text=True)
