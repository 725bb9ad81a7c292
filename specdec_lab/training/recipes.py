"""Recipes of prompts: what a prompt says, with fetched text named by place instead of copied.

A prompt of the corpus is a row of parts. A part is a string of ours or a ``Passage``: source,
document, start and length. So the corpus can be committed and the fetched text can't leak into it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SPLITS = ("train", "heldout")
HELDOUT_SHARE = 16  # one document of so many is held out
Texts = Callable[[str], Mapping[str, str]]  # name of a source -> its documents


@dataclass(frozen=True, slots=True)
class Passage:
    """``length`` characters of a fetched document, from ``start`` on."""

    source: str
    document: str
    start: int
    length: int

    def read(self, texts: Texts) -> str:
        """The text itself. Raises ``ValueError`` when the source does not hold it."""
        text = texts(self.source).get(self.document, "")
        passage = text[self.start : self.start + self.length]
        if len(passage) != self.length:
            raise ValueError(
                f"{self.source} has no {self.length} characters at {self.start} of "
                f"{self.document!r}: the source is not the one this corpus was made from."
            )
        return passage


Part = str | Passage


@dataclass(frozen=True, slots=True)
class Recipe:
    """One prompt: a user's message, how the answer begins, and the document it was made from.

    ``document`` decides the split: prompts of one document are all in train or all held out.
    """

    domain: str
    language: str
    document: str
    message: tuple[Part, ...]
    prefix: tuple[Part, ...] = ()

    @property
    def split(self) -> str:
        """``train`` or ``heldout``, by a hash of the document alone."""
        return split_of(self.document)

    @property
    def is_own(self) -> bool:
        """Whether the prompt consists of our own words, so that no source is needed."""
        return all(isinstance(part, str) for part in self.message + self.prefix)

    @property
    def key(self) -> str:
        """A short fingerprint of what the prompt says."""
        parts = json.dumps([_plain(self.message), _plain(self.prefix)], ensure_ascii=False)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def render(self, texts: Texts) -> tuple[str, str]:
        """The message and the beginning of the answer, as text."""
        return _join(self.message, texts), _join(self.prefix, texts)

    def to_json(self) -> dict:
        """What ``from_json`` reads."""
        return {
            "domain": self.domain,
            "language": self.language,
            "document": self.document,
            "message": _plain(self.message),
            "prefix": _plain(self.prefix),
        }

    @staticmethod
    def from_json(record: Mapping) -> Recipe:
        """The recipe in a record; other keys are left alone."""
        return Recipe(
            domain=record["domain"],
            language=record["language"],
            document=record["document"],
            message=_parts(record["message"]),
            prefix=_parts(record["prefix"]),
        )


def split_of(document: str) -> str:
    """The split of a document: its name decides, whatever the seed or the size of the corpus."""
    first = hashlib.sha256(document.encode()).digest()[0]
    return "heldout" if first % HELDOUT_SHARE == 0 else "train"


def _plain(parts: Iterable[Part]) -> list:
    return [p if isinstance(p, str) else [p.source, p.document, p.start, p.length] for p in parts]


def _parts(plain: Iterable) -> tuple[Part, ...]:
    return tuple(p if isinstance(p, str) else Passage(*p) for p in plain)


def _join(parts: Iterable[Part], texts: Texts) -> str:
    return "".join(part if isinstance(part, str) else part.read(texts) for part in parts)
