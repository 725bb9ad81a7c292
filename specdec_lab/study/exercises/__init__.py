"""Checks of the exercises, one file per notebook: each ``check_...`` function says in a friendly
sentence what is right or what to look at again.

    from specdec_lab.study.exercises import check_walk

A name is looked up in the files ``part_NN.py``, which are imported when first asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType

Check = Callable[..., str]


def parts() -> Iterator[ModuleType]:
    """The files with checks, in the order of the course."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if module.name.startswith("part_"):
            yield importlib.import_module(f"{__name__}.{module.name}")


def checks_of(part: ModuleType) -> dict[str, Check]:
    """The checks that a file defines, by name."""
    return {name: check for name, check in vars(part).items() if name.startswith("check_")}


def __getattr__(name: str) -> Check:
    """The check of that name; AttributeError where no notebook has one."""
    if name.startswith("check_"):
        for part in parts():
            if name in checks_of(part):
                return checks_of(part)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for part in parts() for name in checks_of(part))})
