"""Files of generated answers: one compact format for working shards and for the committed corpus.

A file is an ``.npz`` with the ids of all answers end to end (uint16), their lengths, and what is
said about each in JSON. It is written beside its place and moved there whole, so that a run killed
at any moment leaves whole files and nothing else.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specdec_lab.decoding.trace import repeated_ngram_share
from specdec_lab.training.recipes import Recipe

MOST_REPEATED = 0.3  # an answer with a larger share of repeated 4-grams is a loop
MOST_REPEATED_IN_RECORDS = 0.5  # the same where keys recur by right, or where it came to its end
LARGEST_ID = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A prompt as its recipe, and what the target answered.

    ``prompt_crc`` is the CRC-32 of the prompt's ids (little-endian uint16), to be sure that a
    prompt built again is the one that was answered. ``finish`` is ``eos`` or ``length``.
    """

    recipe: Recipe
    temperature: float
    prompt_length: int
    prompt_crc: int
    finish: str
    tokens: list[int]

    @property
    def is_loop(self) -> bool:
        """Whether the answer goes round in circles: easy to copy, and nothing to learn from.

        Records repeat their keys, and an answer that ended by itself was in no endless circle: both
        may repeat more.
        """
        may_repeat = self.recipe.domain == "json" or self.finish == "eos"
        most = MOST_REPEATED_IN_RECORDS if may_repeat else MOST_REPEATED
        return repeated_ngram_share(self.tokens) > most


@dataclass(frozen=True, slots=True)
class Shard:
    """The entries of one file, and what is said about all of them."""

    entries: list[Entry]
    about: dict


def ids_crc(ids: Sequence[int]) -> int:
    """The CRC-32 of some ids as little-endian uint16."""
    return zlib.crc32(_packed(ids).tobytes())


def _packed(ids: Sequence[int]) -> np.ndarray:
    if ids and max(ids) > LARGEST_ID:
        raise ValueError(f"a corpus holds ids up to {LARGEST_ID}; this vocabulary is larger")
    return np.asarray(ids, dtype="<u2")


def write_shard(path: Path, shard: Shard) -> None:
    """Write a file whole or not at all."""
    entries = shard.entries
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            ids=_packed([i for entry in entries for i in entry.tokens]),
            lengths=np.asarray([len(entry.tokens) for entry in entries], dtype="<u2"),
            records=_text([_record(entry) for entry in entries]),
            about=_text(shard.about),
        )
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_shard(path: Path) -> Shard:
    """The content of a file. Raises ``OSError`` when it is damaged."""
    try:
        with np.load(path) as arrays:
            ends = np.cumsum(arrays["lengths"].astype(np.int64))
            answers = np.split(arrays["ids"], ends[:-1]) if len(ends) else []
            records, about = (json.loads(arrays[key].tobytes()) for key in ("records", "about"))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(f"{path} is damaged ({error}): delete it and make it again.") from error
    pairs = zip(records, answers, strict=True)
    return Shard([_entry(record, answer.tolist()) for record, answer in pairs], about)


def read_folder(folder: Path) -> list[Shard]:
    """All files of a folder, in the order of their names; or the one file that is named."""
    if folder.is_file():
        return [read_shard(folder)]
    return [read_shard(path) for path in sorted(folder.glob("*.npz"))]


def _text(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value, ensure_ascii=False).encode(), dtype=np.uint8)


def _record(entry: Entry) -> dict:
    return entry.recipe.to_json() | {
        "temperature": entry.temperature,
        "prompt_length": entry.prompt_length,
        "prompt_crc": entry.prompt_crc,
        "finish": entry.finish,
    }


def _entry(record: dict, tokens: list[int]) -> Entry:
    return Entry(
        recipe=Recipe.from_json(record),
        temperature=record["temperature"],
        prompt_length=record["prompt_length"],
        prompt_crc=record["prompt_crc"],
        finish=record["finish"],
        tokens=tokens,
    )


def num_tokens(entries: Iterable[Entry]) -> int:
    """Tokens of all answers."""
    return sum(len(entry.tokens) for entry in entries)
