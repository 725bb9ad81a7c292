"""The prompts of the course: ``data/prompts/<domain>.jsonl``, one prompt a line, written for it.

What we measure on has the split "eval"; prompts of the split "dev" are for training and tuning, and
share no text with the others. ``copy`` (repeat word for word) is a control: the most that copying
can reach. Prompts of creative writing and of maths are English only: the default model answers free
Turkish questions with loops, and the Turkish ones of ``chat`` are there to show it.

The default model is small. It quotes, writes records or edits code only when the beginning of the
answer is put into its mouth: the ``prefix``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

FOLDER = Path(__file__).resolve().parents[1] / "data" / "prompts"
SPLITS = ("eval", "dev")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task for the model: a user's message, and how the answer begins (may be empty)."""

    name: str
    domain: str
    language: str
    text: str
    prefix: str = ""
    split: str = "eval"

    def ids(self, target: Target) -> list[int]:
        """Token ids in the target's chat template, the beginning of the answer included."""
        return target.encode_chat(self.text, prefix=self.prefix)


def domains() -> list[str]:
    """The domains that have prompts."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def load_prompts(domain: str, language: str | None = None, split: str = "eval") -> list[Prompt]:
    """The prompts of a domain and a split, in one language if named, in the order of the file.

    Raises ValueError for a domain without prompts and for an unknown split.
    """
    if domain not in domains():
        raise ValueError(f"there are no prompts for {domain!r}; use {', '.join(domains())}")
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; use {' or '.join(SPLITS)}")
    lines = (FOLDER / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [Prompt(domain=domain, **json.loads(line)) for line in lines if line.strip()]
    return [p for p in prompts if p.split == split and language in (None, p.language)]
