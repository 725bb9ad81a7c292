"""What one suffix proposal costs: the same histories and the same row for every implementation.

The texts are the sources of Python's standard library in the target's tokens, in pieces of 500: a
history of "earlier answers"; the row is a piece of what comes behind them.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.study.stopwatch import Spread, alternate

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target
    from specdec_lab.proposers.base import Proposer

PIECE, PROMPT, ANSWER = 500, 600, 200  # tokens
LARGEST = 100_000
Clock = Callable[[list[list[int]], list[int], int], dict]  # history, row, k


def texts(target: Target, num_tokens: int = LARGEST) -> tuple[list[list[int]], list[int]]:
    """A history of so many tokens in pieces, and a row of prompt and answer behind it."""
    ids: list[int] = []
    wanted = LARGEST + PROMPT + ANSWER
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        ids += target.tokenizer(file.read_text(encoding="utf-8"))["input_ids"]
        if len(ids) >= wanted:
            break
    pieces = [ids[at : at + PIECE] for at in range(0, num_tokens, PIECE)]
    return pieces, ids[LARGEST:wanted]


def time_proposals(
    proposer: Proposer, history: list[list[int]], row: list[int], k: int, prompt: int = PROMPT
) -> dict[str, float]:
    """Mean microseconds of `propose` and `observe` while the answer grows as `lengths` says; those
    of the first `propose`, which reads prompt and history, apart. And how much was drafted.
    """
    for text in history:
        proposer.remember(text)
    tokens, how = torch.tensor([row]), Sampling()
    proposer.start(1, len(row))
    proposer.observe(tokens[:, : prompt - 1], torch.tensor([prompt - 1]), {})
    seconds, drafted = [], 0
    with torch.inference_mode():
        for length, new in lengths(prompt, len(row)):
            context = Context(tokens, torch.tensor([length]), torch.tensor([prompt]))
            kept, count = tokens[:, length - 1 : length - 1 + new], torch.tensor([new])
            start = perf_counter()
            draft = proposer.propose(context, k, how, None)
            proposer.observe(kept, count, {})
            seconds.append(perf_counter() - start)
            drafted += int(draft.count)
    return means(seconds, drafted)


def lengths(prompt: int, end: int) -> Iterator[tuple[int, int]]:
    """The row's length at every proposal, and how many tokens then come: two in every third step,
    else one.
    """
    length, step = prompt, 0
    while length < end:
        new = 1 + (step % 3 == 0)
        yield length, new
        length, step = length + new, step + 1


def means(seconds: list[float], drafted: int) -> dict[str, float]:
    """The result of one round."""
    return {
        "microseconds": 1e6 * sum(seconds[1:]) / len(seconds[1:]),
        "first_microseconds": 1e6 * seconds[0],
        "drafted": drafted,
        "proposals": len(seconds),
    }


def compare(
    clocks: Mapping[str, Clock], history: list[list[int]], row: list[int], k: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Median, lowest and highest microseconds of every implementation, which take turns."""
    arms = {name: (lambda clock=clock: clock(history, row, k)) for name, clock in clocks.items()}
    found = alternate(arms, rounds)
    return {name: _spread(results) for name, results in found.items()}


def _spread(results: list[dict[str, float]]) -> dict[str, float]:
    """The rounds of one implementation as one entry of the table."""
    spread = Spread.of(result["microseconds"] for result in results)
    first = median(result["first_microseconds"] for result in results)
    rest = {name: results[0][name] for name in ("drafted", "proposals")}
    return asdict(spread) | {"first": first} | rest
