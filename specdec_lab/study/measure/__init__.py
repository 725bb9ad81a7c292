"""Speed on this machine, side by side; ``python -m specdec_lab measure`` runs it.

One file a part, such as `cost` or `decode`; `parts` says what a part is made of, and runs it. Each
part alternates its arms inside one run and reports medians, since a shared machine is only good for
ratios; the recordings lie in ``data/measurements/<machine>/``.

Names load when they are first used: a peer in a child process needs none of them, nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.study.measure.cost import measure_cost
    from specdec_lab.study.measure.timing import alternate, machine_name, seconds_of, stopwatch

__all__ = ["alternate", "machine_name", "measure_cost", "seconds_of", "stopwatch"]


def __getattr__(name: str) -> object:
    """A public name, imported from its file now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "cost" if name == "measure_cost" else "timing"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
