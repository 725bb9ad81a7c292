"""What plain decoding writes on the evaluation prompts, kept so that nobody has to write it twice.

``data/measurements/texts/T<temperature>.json`` holds token ids by prompt. An entry belongs to one
model, one seed, one length and one prompt; where any of them has changed, it is written anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import Prompt
from specdec_lab.proposers.weights import target_hash
from specdec_lab.study import recordings
from specdec_lab.study.measurements import FOLDER as MEASUREMENTS

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

FOLDER = f"{MEASUREMENTS}/texts"
ROWS = 8  # prompts that are answered together; a row writes what it would write alone


def known_texts(
    target: Target, prompts: Sequence[Prompt], max_new_tokens: int, temperature: float, seed: int
) -> list[list[int]]:
    """The answer of plain decoding to every prompt, in token ids; the missing ones are written and
    kept.
    """
    how = {
        "model": target.name,
        "target_hash": target_hash(target),
        "max_new_tokens": max_new_tokens,
        "seed": seed,
    }
    slug = f"T{temperature:g}"
    kept = _kept(slug, how)
    missing = [p for p in prompts if _key(p, target) not in kept]
    if missing:
        kept |= _write(target, missing, max_new_tokens, temperature, seed)
        ordered = dict(sorted(kept.items()))
        recordings.save(
            slug, {**how, "texts": ordered}, folder=FOLDER, command="measure acceptance"
        )
    return [kept[_key(prompt, target)] for prompt in prompts]


def _kept(slug: str, how: Mapping[str, object]) -> dict[str, list[int]]:
    """Answers by key that were written like this; {} if there are none."""
    try:
        found = recordings.load(slug, folder=FOLDER)
    except OSError:
        return {}
    same = all(found.get(name) == value for name, value in how.items())
    return dict(found["texts"]) if same else {}


def _key(prompt: Prompt, target: Target) -> str:
    """The name of a prompt, and a fingerprint of its ids."""
    ids = np.asarray(prompt.ids(target), dtype=np.int64)
    return f"{prompt.domain}/{prompt.name} {zlib.crc32(ids.tobytes()):08x}"


def _write(
    target: Target, prompts: Sequence[Prompt], max_new_tokens: int, temperature: float, seed: int
) -> dict[str, list[int]]:
    """Plain decoding, prompts of about one length together."""
    ordered = sorted(prompts, key=lambda prompt: len(prompt.ids(target)))
    written = {}
    for start in range(0, len(ordered), ROWS):
        some = ordered[start : start + ROWS]
        answers = generate(
            target,
            [prompt.ids(target) for prompt in some],
            sampling=Sampling(temperature=temperature),
            max_new_tokens=max_new_tokens,
            seed=seed,
        ).tokens
        written |= {_key(p, target): answer for p, answer in zip(some, answers, strict=True)}
    return written
