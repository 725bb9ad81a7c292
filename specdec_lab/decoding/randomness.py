"""Where chance enters: ``coin(probability)`` and ``draw(probs)``, and nothing else.

Every random choice of the lab names the *place* it is made for. The production source turns (seed
of the row, place) into one uniform number by a counter-based hash, so that nothing depends on the
order of calls, on the batch or on the device. The enumerating source runs the very same production
code over every branch and yields the exact law.

A place is (position, lane, offset):

* ``Lane.TARGET`` is keyed by the absolute position of the token drawn. Plain decoding and
  sample-and-match draw the same token from the same uniform, so a seed fixes the text whatever was
  drafted.
* the other lanes are keyed by the length of the context the step started from, plus an offset
  inside the step. That length grows with every step, so no uniform is ever used twice: a rule that
  scans beyond the first refusal (block verification) has consumed the later coins, and using them
  again would bias the next step.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

_INCREMENT = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 / golden ratio, as a signed 64-bit number
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)


class Lane(IntEnum):
    """What a uniform number is used for; different lanes never share one."""

    TARGET = 0  # a token of the target's own law, keyed by its absolute position
    DRAFT = 1  # drafted token number `offset` of a step
    ACCEPT = 2  # acceptance coin number `offset` of a step
    RECOVER = 3  # the one token that a ratio rule adds at the end of a step


class Randomness(Protocol):
    """The two methods through which all of the lab's chance flows."""

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        """True with the given probability (B, ...), decided by ``uniform < probability``."""
        ...

    def draw(self, probs: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """One token id (B, ...) from each law ``probs`` (B, ..., V), by inverse CDF in float64."""
        ...


def _shift_right(bits: Tensor, by: int) -> Tensor:
    return (bits >> by) & ((1 << (64 - by)) - 1)  # logical: torch shifts int64 arithmetically


def _mix(bits: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), in wrapping int64 arithmetic."""
    bits = (bits ^ _shift_right(bits, 30)) * _MULTIPLY_1
    bits = (bits ^ _shift_right(bits, 27)) * _MULTIPLY_2
    return bits ^ _shift_right(bits, 31)


def inverse_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    """The first index whose cumulative probability exceeds ``uniform``, (B, ...) from (B, ..., V).

    Float64 throughout; a zero entry is never chosen, whatever the uniform number in [0, 1).
    """
    cumulative = probs.double().cumsum(-1)  # (B, ..., V)
    total = cumulative[..., -1:]
    found = torch.searchsorted(cumulative, uniform.unsqueeze(-1) * total, right=True)
    return found.squeeze(-1).clamp(max=probs.shape[-1] - 1)


class CounterRandomness:
    """The production source: uniform = hash(seed of the row, position, lane, offset).

    ``seeds`` is one integer per row. int64 tensor operations only: the same numbers on CPU, CUDA
    and inside a captured graph, and the global generator of torch is never touched.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        signed = [(int(seed) + (1 << 63)) % (1 << 64) - (1 << 63) for seed in seeds]
        start = torch.tensor(signed, dtype=torch.long, device=device)  # (B,)
        self._rows = _mix(start + _INCREMENT)

    def uniform(self, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """Multiples of 2**-52 in [0, 1), float64, in the shape of ``position`` (B, ...)."""
        rows = self._rows.view(-1, *[1] * (position.ndim - 1))
        bits = _mix(rows + position * _INCREMENT)
        channel = torch.zeros_like(position) + (offset * len(Lane) + int(lane) + 1)
        bits = _mix(bits + channel * _INCREMENT)
        return _shift_right(bits, 12).double() * 2.0**-52

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        """True where the uniform of the place is below ``probability`` (strictly: 0 never wins)."""
        return self.uniform(position, lane, offset) < probability

    def draw(self, probs: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """A token id (B, ...) per law ``probs`` (B, ..., V), from the uniform of the place."""
        return inverse_cdf(probs, self.uniform(position, lane, offset))


def row_seeds(seed: int | Sequence[int | None] | None, batch_size: int) -> list[int]:
    """One integer per row: an int serves every row, ``None`` becomes fresh entropy.

    With one int every row behaves exactly as the same prompt alone with that seed; give a list to
    let equal prompts differ. Raises ValueError when a list does not have one entry per row or an
    entry is no integer.
    """
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * batch_size
    if len(seeds) != batch_size:
        raise ValueError(f"seed has {len(seeds)} entries for {batch_size} prompts; give one each.")
    if any(isinstance(s, bool) or not isinstance(s, int | None) for s in seeds):
        raise ValueError(f"seed must be an integer, None, or a list of these, not {seed!r}.")
    return [secrets.randbits(63) if s is None else s for s in seeds]


Box = dict[tuple[int, int, int], tuple[float, float]]  # place -> the interval its uniform lies in


class EnumeratingRandomness:
    """Runs production code over every branch, and gives each branch its exact probability.

    It *is* the production source with the uniforms left open: each place holds an interval of [0,
    1), and a choice cuts that interval at the points where the outcome changes. A place that is
    asked twice therefore answers consistently, exactly as a hash would, and a rule that reuses one
    uniform shows its true, wrong law.

    Every row of a batch follows a branch of its own, inside the box that it was given. At each cut
    it goes on in the first piece; ``others[b]`` collects the boxes that row ``b`` left aside.
    """

    def __init__(self, boxes: Sequence[Box] = ({},)) -> None:
        self._boxes = [dict(box) for box in boxes]
        self._closed = [False] * len(boxes)
        self.others: list[list[Box]] = [[] for _ in boxes]

    def weight(self, row: int = 0) -> float:
        """Probability of the branch that a row took: the volume of its box."""
        return math.prod(high - low for low, high in self._boxes[row].values())

    def close(self, row: int) -> None:
        """The outcome of a row is settled: whatever it is still asked opens no branch."""
        self._closed[row] = True

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        """As the production source: True on [0, p), False on [p, 1)."""
        cuts = torch.stack([probability.double(), torch.ones_like(probability.double())], -1)
        return self._choose(cuts.clamp(0, 1), position, lane, offset) == 0

    def draw(self, probs: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """As the production source: token t on its stretch of the cumulative law."""
        cumulative = probs.double().cumsum(-1)
        return self._choose(cumulative / cumulative[..., -1:], position, lane, offset)

    def _choose(self, cuts: Tensor, position: Tensor, lane: Lane, offset: Tensor | int) -> Tensor:
        shape = cuts.shape[:-1]  # (B, ...)
        offsets = torch.as_tensor(offset).expand(shape).reshape(-1).tolist()
        positions = position.expand(shape).reshape(-1).tolist()
        cut_rows = cuts.reshape(-1, cuts.shape[-1]).tolist()
        per_row = len(cut_rows) // len(self._boxes)
        rows = [i // per_row for i in range(len(cut_rows))]
        keys = [(p, int(lane), o) for p, o in zip(positions, offsets, strict=True)]
        picked = list(map(self._pick, rows, keys, cut_rows))
        return torch.tensor(picked, dtype=torch.long).reshape(shape)

    def _pick(self, row: int, key: tuple[int, int, int], cuts: list[float]) -> int:
        if self._closed[row]:
            return 0
        box = self._boxes[row]
        low, high = box.get(key, (0.0, 1.0))
        pieces = [(max(low, a), min(high, b)) for a, b in pairwise((0.0, *cuts[:-1], 1.0))]
        first, *rest = (i for i, (a, b) in enumerate(pieces) if b > a)
        self.others[row] += [{**box, key: pieces[i]} for i in reversed(rest)]
        box[key] = pieces[first]
        return first


def enumerate_law(run: Callable[[EnumeratingRandomness], Hashable]) -> dict[Hashable, float]:
    """The exact law of what ``run(randomness)`` returns, by running it once per branch.

    ``run`` must return something hashable and use chance through its argument alone.
    """
    return enumerate_laws(lambda randomness, _: [run(randomness)], 1, width=1)[0]


def enumerate_laws(
    run: Callable[[EnumeratingRandomness, list[int]], Sequence[Hashable]],
    num_laws: int,
    width: int = 512,
) -> list[dict[Hashable, float]]:
    """The exact laws of ``num_laws`` programs that run side by side, many branches in one batch.

    ``run(randomness, which)`` starts a batch whose row ``b`` is a branch of program ``which[b]``,
    and returns one hashable outcome per row. At most ``width`` rows run together. Rows must be
    independent of each other, as those of the decoding loop are.
    """
    laws: list[dict[Hashable, float]] = [{} for _ in range(num_laws)]
    waiting: list[tuple[int, Box]] = [(i, {}) for i in range(num_laws)]
    while waiting:
        waiting, rows = waiting[:-width], waiting[-width:]
        which = [i for i, _ in rows]
        randomness = EnumeratingRandomness([box for _, box in rows])
        for b, outcome in enumerate(run(randomness, which)):
            law = laws[which[b]]
            law[outcome] = law.get(outcome, 0.0) + randomness.weight(b)
            waiting += [(which[b], box) for box in randomness.others[b]]
    return laws
