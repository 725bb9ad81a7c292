"""Recorded numbers: what every figure is drawn from, kept in ``data/recordings`` with where it came
from.

``SPECDEC_LAB_OUTPUT`` names a folder that takes all new recordings and figures instead of the
project's own; reading then looks there first.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DIGITS = 6  # significant digits of a recorded float: more is noise, and makes files differ
CPUINFO = Path("/proc/cpuinfo")
PACKAGES = ("specdec-lab", "torch", "transformers", "numpy", "matplotlib")


def output_folder(name: str) -> Path:
    """Where new files of a kind go: ``name`` in the project or in ``SPECDEC_LAB_OUTPUT``."""
    return Path(os.environ.get("SPECDEC_LAB_OUTPUT") or PROJECT) / name


def save(
    slug: str, data: Mapping[str, object], folder: str = "data/recordings", **facts: object
) -> dict:
    """Record ``data`` under a name and return it as `load` will: floats rounded, lists for tuples.

    ``folder`` is where, from the project's top.

    ``facts`` (such as a seed or a command) join the provenance. A recording that already holds the
    same numbers is left alone, date included. Raises ValueError for NaN, infinities and objects
    that JSON does not know.
    """
    recorded = rounded(data)
    path = output_folder(folder) / f"{slug}.json"
    if not path.exists() or _read(path)["data"] != recorded:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"slug": slug, "provenance": provenance(**facts), "data": recorded}
        path.write_text(_in_lines(whole) + "\n", encoding="utf-8")
    return recorded


def load(slug: str, folder: str = "data/recordings") -> dict:
    """The recorded data of a name; OSError when nothing was recorded."""
    return _find(slug, folder)["data"]


def origin(slug: str) -> dict:
    """The provenance of a recording: machine, versions, date, command."""
    return _find(slug)["provenance"]


def slugs() -> list[str]:
    """Names of all recordings of the project, in order."""
    return sorted(path.stem for path in (PROJECT / "data/recordings").glob("*.json"))


def provenance(command: str = "make notebooks", **facts: object) -> dict:
    """Where numbers computed now come from: command, date, machine and versions."""
    return {
        "command": command,
        **facts,
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version(), **_versions()},
    }


def cpu(cpuinfo: Path = CPUINFO) -> str:
    """The processor's name. Virtual machines often give one without the number of a product, such
    as "AMD EPYC", to different processors: those have their family and model added.
    """
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    facts = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    name = facts.get("model name") or platform.processor() or platform.machine()
    has_number = re.search(r"\d", re.sub(r"@.*|version.*", "", name))
    if has_number or not facts.keys() >= {"cpu family", "model"}:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts['model']})"


def rounded(value: object) -> object:
    """``value`` as JSON would return it, floats at six significant digits.

    Arrays and tensors become lists, tuples too; keys become strings.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{type(value).__name__} cannot be recorded; give numbers, text and lists.")


def _find(slug: str, folder: str = "data/recordings") -> dict:
    for place in (output_folder(folder), PROJECT / folder):
        if (place / f"{slug}.json").exists():
            return _read(place / f"{slug}.json")
    raise OSError(f"There is no recording {slug!r}; run the notebook that makes it.")


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _in_lines(whole: dict, depth: int = 2) -> str:
    """JSON with a line for every entry of the outer two levels."""
    if depth == 0 or not isinstance(whole, dict) or not whole:
        return json.dumps(whole, ensure_ascii=False, allow_nan=False)
    indent = " " * (3 - depth)
    lines = [
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_in_lines(value, depth - 1)}"
        for key, value in whole.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent[1:]}}}"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
