"""The prompts of the course: ``data/prompts/<domain>.jsonl``, one prompt a line, written for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

FOLDER = Path(__file__).resolve().parents[1] / "data" / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task for the model: a user's message, and how the answer begins (may be empty)."""

    name: str
    domain: str
    language: str
    text: str
    prefix: str = ""

    def ids(self, target: Target) -> list[int]:
        """Token ids in the target's chat template, the beginning of the answer included."""
        return target.encode_chat(self.text, prefix=self.prefix)


def domains() -> list[str]:
    """The domains that have prompts."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def load_prompts(domain: str, language: str | None = None) -> list[Prompt]:
    """All prompts of a domain, in one language if named; ValueError for a domain without any."""
    if domain not in domains():
        raise ValueError(f"there are no prompts for {domain!r}; use {', '.join(domains())}")
    lines = (FOLDER / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [Prompt(domain=domain, **json.loads(line)) for line in lines if line.strip()]
    return [p for p in prompts if language in (None, p.language)]
