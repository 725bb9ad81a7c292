"""How often a drafter's first, second, third guess is taken on answers of the target.

Decoding judges a deep guess only now and then. Here the drafter guesses at *every* place of the
answers (`forced_drafts`), so that few answers say enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.base import Proposer
from specdec_lab.study.expected_steps import count_steps
from specdec_lab.study.forced_drafts import (
    Acceptance,
    KnownTexts,
    acceptance_along,
    acceptance_of,
    read_texts,
)

LEAST_REACHED = 10  # places that a share needs to be told


@dataclass(frozen=True, slots=True)
class Taken:
    """Greedy acceptance of a drafter: ``alpha`` by depth at the ``reached`` places where all
    guesses before it were right (None for too few), and ``tau`` of decoding the same answers.
    """

    alpha: list[float | None]
    reached: list[int]
    tau: float


def taken_by_depth(
    target: Target,
    proposer: Proposer,
    prompts: Sequence[Sequence[int]],
    k: int,
    max_new_tokens: int = 48,
) -> Taken:
    """Decode ``prompts`` with chains of ``k`` tokens, then draft at every place of the answers."""
    run = generate(target, prompts, proposer, k=k, max_new_tokens=max_new_tokens)
    layers = getattr(proposer, "hidden_layers", ())
    texts = read_texts(target, prompts, run.tokens, layers)
    alpha, reached = _by_depth(acceptance_along(proposer, texts, k), texts)
    return Taken(alpha, reached, run.trace.tau)


def taken_along(
    proposer: Proposer, texts: KnownTexts, k: int, eos_ids: Sequence[int] = ()
) -> Taken:
    """The same on answers that are known, with the states that ``proposer`` reads: nothing is
    decoded, ``tau`` is that of the steps that decoding would take.
    """
    found = acceptance_of(proposer, texts, k)
    alpha, reached = _by_depth(found, texts)
    lengths = (texts.lengths - texts.prompt_lengths).tolist()
    ends = texts.tokens.gather(1, texts.lengths[:, None] - 1)[:, 0].tolist()
    rows = zip(found.chances.tolist(), found.drafted.tolist(), lengths, ends, strict=True)
    steps = sum(
        count_steps(chances[:length], drafted[:length], k, end in eos_ids).steps
        for chances, drafted, length, end in rows
    )
    return Taken(alpha, reached, sum(lengths) / steps)


def _by_depth(found: Acceptance, texts: KnownTexts) -> tuple[list[float | None], list[int]]:
    """Shares taken, and the places that they are shares of."""
    places, depth = found.chances.shape[1:]
    following = torch.arange(places)[:, None] + torch.arange(depth)  # (T, K)
    inside = following < (texts.lengths - texts.prompt_lengths)[:, None, None]  # (B, T, K)
    before = torch.cat([torch.ones_like(found.chances[..., :1]), found.chances[..., :-1]], -1)
    reached = before.cumprod(-1) * inside
    counts = reached.sum((0, 1)).tolist()
    taken = (reached * found.chances).sum((0, 1)).tolist()
    shares = zip(taken, counts, strict=True)
    return [t / c if c >= LEAST_REACHED else None for t, c in shares], [int(c) for c in counts]
