"""What a copying proposer would have done, for every k, from one text that was decoded plainly.

Greedy decoding writes one text whatever is drafted. So where a draft depends on the text alone, the
steps of speculative decoding follow from the text: the first drafted tokens that the text goes on
with are accepted. One plain run thus answers for every k and every option, without the model. (For
sampling this holds too, with a seed and the rule ``match``: the text is fixed there as well.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context, RowStep
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.trace import Trace


def replay(
    proposer: Any,
    prompt: Sequence[int],
    output: Sequence[int],
    k: int,
    max_new_tokens: int | None = None,
    eos_ids: Sequence[int] = (),
) -> Trace:
    """The trace (without clocks) that greedy decoding of ``prompt`` into ``output`` would leave.

    ``proposer`` must be a function of the text alone, as n-gram is. ``max_new_tokens`` is the
    budget of that run (None: it ended by its own length): a step drafts one token less than is left
    of it. What is drafted behind one of ``eos_ids`` was never drafted.
    """
    drafts = _drafts(proposer, prompt, output, k)
    budget = len(output) if max_new_tokens is None else max_new_tokens
    steps, at = [], 0
    while at < len(output):
        drafted = _until_end(drafts[at][: max(budget - at - 1, 0)], eos_ids)
        following = list(output[at:])
        accepted = _agreed(drafted, following)
        steps.append(_step(drafted, following, accepted))
        at += len(steps[-1].tokens)
    return Trace([steps], num_forwards=len(steps))


def _drafts(proposer: Any, prompt: Sequence[int], output: Sequence[int], k: int) -> list[list[int]]:
    """The draft at every place of ``output``: one call, a row for each place."""
    text = torch.tensor([*prompt, *output])
    lengths = torch.arange(len(output)) + len(prompt)  # (B,)
    tokens = text.expand(
        len(output), -1
    )  # (B, L); what lies behind a row's length is not looked at
    context = Context(tokens, lengths, torch.full_like(lengths, len(prompt)))
    draft = proposer.propose(context, k, Sampling(), CounterRandomness([0] * len(output)))
    return [
        row[:count] for row, count in zip(draft.tokens.tolist(), draft.count.tolist(), strict=True)
    ]


def _until_end(drafted: list[int], eos_ids: Sequence[int]) -> list[int]:
    """The draft up to its first end token, that one included."""
    ends = [place + 1 for place, token in enumerate(drafted) if token in eos_ids]
    return drafted[: min(ends, default=len(drafted))]


def _agreed(drafted: Sequence[int], following: Sequence[int]) -> int:
    """How many of the first drafted tokens the text goes on with."""
    agreed = 0
    while agreed < min(len(drafted), len(following)) and drafted[agreed] == following[agreed]:
        agreed += 1
    return agreed


def _step(drafted: list[int], following: list[int], accepted: int) -> RowStep:
    """One step of the loop; where the text ends inside the draft, so does the draft."""
    if accepted == len(following):
        drafted = drafted[:accepted]
    return RowStep(drafted, following[: accepted + 1], accepted, at=0.0)
