"""specdec_lab: a course on speculative decoding that is also a laboratory.

The public names below are found when they are first used, so that ``import specdec_lab``, and the
theory in `specdec_lab.study`, load no torch.

    >>> from specdec_lab import generate, load_proposer, load_target
    >>> target = load_target()
    >>> prompt = target.encode_chat("What is a prime number?")
    >>> generation = generate(target, [prompt], load_proposer("ngram"), k=4)
    >>> print(target.decode(generation.tokens[0]), generation.trace.tau)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from specdec_lab.threads import prepare as _prepare_threads

if TYPE_CHECKING:
    from specdec_lab.decoding.checkpoint import load_target
    from specdec_lab.decoding.decode import Generation, generate, stream
    from specdec_lab.decoding.records import Context, Draft, Step
    from specdec_lab.decoding.sampling import Sampling
    from specdec_lab.decoding.trace import Trace
    from specdec_lab.proposers import load_proposer
    from specdec_lab.proposers.base import Proposer
    from specdec_lab.proposers.draft_model import DraftModel
    from specdec_lab.proposers.eagle import Eagle
    from specdec_lab.proposers.mlp_speculator import MLPSpeculator
    from specdec_lab.proposers.mtp import MTP
    from specdec_lab.proposers.ngram import NGram
    from specdec_lab.proposers.pard import PARD
    from specdec_lab.proposers.suffix import Suffix

_prepare_threads()  # before torch is loaded

__version__ = "0.1.0"

__all__ = [
    "MTP",
    "PARD",
    "Context",
    "Draft",
    "DraftModel",
    "Eagle",
    "Generation",
    "MLPSpeculator",
    "NGram",
    "Proposer",
    "Sampling",
    "Step",
    "Suffix",
    "Trace",
    "generate",
    "load_proposer",
    "load_target",
    "stream",
]

_HOMES = {
    "decoding.checkpoint": ("load_target",),
    "decoding.decode": ("Generation", "generate", "stream"),
    "decoding.records": ("Context", "Draft", "Step"),
    "decoding.sampling": ("Sampling",),
    "decoding.trace": ("Trace",),
    "proposers": ("load_proposer",),
    "proposers.base": ("Proposer",),
    "proposers.draft_model": ("DraftModel",),
    "proposers.eagle": ("Eagle",),
    "proposers.mlp_speculator": ("MLPSpeculator",),
    "proposers.mtp": ("MTP",),
    "proposers.ngram": ("NGram",),
    "proposers.pard": ("PARD",),
    "proposers.suffix": ("Suffix",),
}


def __getattr__(name: str) -> object:
    """A public name, imported from its room now."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names beside what is loaded."""
    return sorted({*globals(), *__all__})
