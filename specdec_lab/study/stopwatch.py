"""The one clock of the course, and its four rules: warm up, alternate, compare within a round, show
the spread.

What is to be compared are *arms*. In a round every arm runs once, one after the other, and every
second round goes backwards: a machine that slows down or does something else meets all of them.
Ratios are taken within a round; a result is the median over the rounds, and its spread goes from
the lowest round to the highest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TypeVar

LEAST_ROUNDS = 3  # with fewer, one disturbed round is the median or half of it
CLOCK_ERROR = 0.02  # of a ratio: closer than that no clock tells it from a limit
UNITS = {"s": 1, "ms": 1e3, "µs": 1e6}  # in a second
T, Name = TypeVar("T"), TypeVar("Name")


@dataclass(frozen=True, slots=True)
class Spread:
    """A number that was measured in several rounds: their median, lowest and highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of the rounds' values; ValueError for none."""
        values = list(values)
        if not values:
            raise ValueError("a spread needs a round at least")
        return cls(median(values), min(values), max(values))

    def exceeds(self, limit: float) -> bool:
        """Whether it lies above the limit by more than its spread: every round does, by more than
        the clock's own error.
        """
        return self.low > limit * (1 + CLOCK_ERROR)

    def __format__(self, form: str) -> str:
        """Median and, in brackets, lowest-highest; the format is that of each number (".2f")."""
        low, middle, high = (format(x, form or ".2f") for x in (self.low, self.median, self.high))
        return f"{middle} ({low}-{high})"

    def __str__(self) -> str:
        return format(self)


class Times:
    """What the arms took, in ``seconds``: arm -> one number a round."""

    def __init__(self, seconds: Mapping[str, list[float]]) -> None:
        self.seconds = dict(seconds)

    def of(self, arm: str, unit: str = "s") -> Spread:
        """The time of an arm in s, ms or µs."""
        return Spread.of(UNITS[unit] * value for value in self.seconds[arm])

    def ratio(self, arm: str, over: str) -> Spread:
        """The time of an arm in times of another, taken within each round."""
        pairs = zip(self.seconds[arm], self.seconds[over], strict=True)
        return Spread.of(one / other for one, other in pairs)

    def medians(self) -> dict[str, float]:
        """Median seconds of every arm."""
        return {arm: median(values) for arm, values in self.seconds.items()}

    def table(self, unit: str = "ms", over: str | None = None, form: str = ".1f") -> str:
        """A line an arm: its time, and the ratio to the arm ``over``, by default the first."""
        from specdec_lab.study.measure.progress import table

        over = over or next(iter(self.seconds))
        rounds = len(self.seconds[over])
        rows = [
            [arm, format(self.of(arm, unit), form), format(self.ratio(arm, over), ".2f")]
            for arm in self.seconds
        ]
        note = f"median of {rounds} alternating rounds (lowest-highest)"
        return f"{table(('', unit, f'over {over}'), rows)}\n{note}"

    def __str__(self) -> str:
        return self.table()


def time_arms(
    arms: Mapping[str, Callable[[], object]], rounds: int = LEAST_ROUNDS, warm_up: int = 1
) -> Times:
    """The wall time of every arm in alternating rounds, see `alternate`."""
    timed = {name: (lambda work=work: seconds_of(work)) for name, work in arms.items()}
    return Times(alternate(timed, rounds, warm_up))


def alternate(
    arms: Mapping[Name, Callable[[], T]], rounds: int = LEAST_ROUNDS, warm_up: int = 1
) -> dict[Name, list[T]]:
    """What every arm returns in each round, after ``warm_up`` rounds that are not counted.

    Raises ValueError for fewer than ``LEAST_ROUNDS`` rounds.
    """
    check_rounds(rounds)
    results: dict[Name, list[T]] = {name: [] for name in arms}
    for number in range(-warm_up, rounds):
        for name in in_turn(arms, number):
            result = arms[name]()
            if number >= 0:
                results[name].append(result)
    return results


def in_turn(arms: Iterable[T], number: int) -> list[T]:
    """The arms in the order of a round: as they stand in the even ones, backwards in the others."""
    return list(arms)[:: -1 if number % 2 else 1]


def check_rounds(rounds: int) -> int:
    """The number of rounds; ValueError for fewer than ``LEAST_ROUNDS``."""
    if rounds < LEAST_ROUNDS:
        raise ValueError(
            f"{rounds} rounds show no spread; a time needs {LEAST_ROUNDS} rounds or more"
        )
    return rounds


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call, on an accelerator until the last of its work is done."""
    return clocked(work)[0]


def clocked(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of one call as `seconds_of` counts them, and what it returned."""
    _finish_all()
    start = perf_counter()
    result = work()
    _finish_all()
    return perf_counter() - start, result


def _finish_all() -> None:
    """Wait for what an accelerator was given to do; nothing where none is in use."""
    torch = sys.modules.get("torch")  # whoever uses an accelerator has loaded it
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
