"""Long measurements in several sittings: every finished cell is saved at once.

A part of `measure` is cut into cells, the units that are timed together. A run that was stopped
goes on after the last finished one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from specdec_lab.study import recordings
from specdec_lab.study.measure.progress import Progress

Say = Callable[[str], None]
Work = Callable[[], Mapping[str, object]]


class Sittings:
    """The finished cells of a part that is under way, in a file beside its recording.

    ``settings`` is all that a result depends on (what is measured, model, versions): of a file that
    was begun under others nothing is used, and ``say`` gets a line about it. Raises ValueError for
    a damaged file.
    """

    def __init__(self, path: Path, settings: Mapping[str, object], say: Say) -> None:
        self.path = path
        self.number = 1
        self._settings = recordings.rounded(settings)
        self._finished: dict[str, dict] = {}
        if path.exists():
            self._resume(_read(path), say)

    def _resume(self, earlier: Mapping[str, dict], say: Say) -> None:
        changed = _differences(earlier["settings"], self._settings)
        if changed:
            say(f"{self.path.name} was begun with another {', '.join(changed)}: starting afresh.")
            return
        self._finished, self.number = earlier["cells"], earlier["sittings"] + 1
        say(f"Going on where {self.path.name} stopped: {len(self._finished)} cells are finished.")

    def run(self, cells: Mapping[str, Work], part: str = "") -> dict[str, dict]:
        """The result of every cell as JSON has it, in order; those not finished are run now."""
        todo = [name for name in cells if name not in self._finished]
        with Progress(part, len(todo)) as progress:
            for name in todo:
                start = perf_counter()
                self._save(name, cells[name]())
                progress.step(name, perf_counter() - start)
        return {name: self._finished[name] for name in cells}

    def _save(self, name: str, result: Mapping[str, object]) -> None:
        """All finished cells in one file, which is replaced as a whole."""
        self._finished[name] = recordings.rounded(result)
        whole = {"settings": self._settings, "sittings": self.number, "cells": self._finished}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(whole, allow_nan=False), encoding="utf-8")
        os.replace(scratch, self.path)

    def clear(self) -> None:
        """Remove the file: the part is finished and recorded."""
        self.path.unlink(missing_ok=True)


def _read(path: Path) -> dict:
    """The file of an earlier sitting; ValueError for any other content."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"settings": dict, "sittings": int, "cells": dict}
        sound = all(isinstance(found[key], kind) for key, kind in kinds.items())
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ValueError(f"{path} is damaged; delete it and measure again.")
    return found


def _differences(one: object, other: object, name: str = "") -> list[str]:
    """Dotted names of all that differs between two settings."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return [] if one == other else [name]
    found = []
    for key in sorted(one.keys() | other.keys()):
        found += _differences(one.get(key), other.get(key), f"{name}.{key}".lstrip("."))
    return found
