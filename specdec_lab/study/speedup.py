"""How much faster a draft makes decoding: the same requests, plain and in other ways, in the
alternating rounds of `stopwatch`.

A speed-up comes in two forms, each taken within a round. Both never divide latencies between tokens
(ITL): those begin behind the first burst, which makes a long burst look free in a short answer.

* ``speedup`` is that of *whole requests*, the reading of the prompt included: what a user sees.
* ``steps`` leaves the prompt out: tau over the price of a step in plain steps.

Neither can exceed tau, tokens per forward: at best a step with a draft costs what a plain one does.
(Should several rows be cheaper than one on some machine, plain decoding could run its single row
among idle ones; such a gain is none of the draft's.) So a speed-up above tau by more than its
spread is a disturbed clock, and no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specdec_lab.decoding.decode import Generation, generate
from specdec_lab.decoding.trace import Trace
from specdec_lab.study.measure.progress import table
from specdec_lab.study.stopwatch import LEAST_ROUNDS, Spread, check_rounds, in_turn

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

PLAIN = "plain"
WARM_UP = 8  # tokens that every way writes before the first round
REFUSED = "refused: above tau by more than its spread; measure again on a quieter machine"
Way = Mapping[str, object]  # what `generate` takes: proposer, k, verify ...


@dataclass(frozen=True, slots=True)
class Speed:
    """One way to decode the requests.

    ``trace`` and ``tokens`` are those of one round (they are the same in each), all requests
    together; ``seconds`` is the time of a request, the reading of its prompt included; ``price`` is
    that of a step in plain steps, ``draft`` that of the drafting in it; for ``speedup`` and
    ``steps`` see the top of the file.
    """

    trace: Trace
    tokens: list[list[int]]
    seconds: Spread
    price: Spread
    draft: Spread
    speedup: Spread
    steps: Spread

    @property
    def tau(self) -> float:
        """Tokens per forward of the target."""
        return self.trace.tau

    @property
    def refused(self) -> bool:
        """Whether a speed-up exceeds tau by more than its spread, and so is no result."""
        return self.speedup.exceeds(self.tau) or self.steps.exceeds(self.tau)

    def entry(self, what: str = "speedup") -> dict[str, float | bool]:
        """For a figure: tau, and median, low and high of ``speedup``, or of "steps" or "price"."""
        found = getattr(self, what)
        span = {"low": found.low, "high": found.high, "refused": self.refused}
        return {"tau": self.tau, what: found.median, **span}


@dataclass(frozen=True, slots=True)
class Speeds:
    """All ways by label, plain decoding first; prints as a table that says what it contains."""

    ways: dict[str, Speed]
    rounds: int
    max_new_tokens: int

    def __getitem__(self, label: str) -> Speed:
        return self.ways[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ways)

    def __str__(self) -> str:
        """A line a way; a refused speed-up stands there as such."""
        number = len(self.ways[PLAIN].tokens)
        about = (
            f"{number} request{'s' * (number > 1)} of at most {self.max_new_tokens} tokens; median "
            f"of {self.rounds} alternating rounds (lowest-highest)"
        )
        head = ("", "tau", "step, plain = 1", "s a request, with prompt")
        rows = [_row(label, speed) for label, speed in self.ways.items()]
        lines = table((*head, "speed-up, with prompt", "without"), rows)
        refused = any(speed.refused for speed in self.ways.values())
        return "\n".join([about, lines, *[REFUSED] * refused])


def _row(label: str, speed: Speed) -> list[str | float | None]:
    if label == PLAIN:
        return [label, speed.tau, None, str(speed.seconds), None, None]
    ups = (speed.speedup, speed.steps)
    shown = ["refused" if up.exceeds(speed.tau) else str(up) for up in ups]
    return [label, speed.tau, str(speed.price), str(speed.seconds), *shown]


def measure_speedup(
    target: Target,
    prompts: Sequence[Sequence[int]],
    ways: Mapping[str, Way],
    *,
    max_new_tokens: int = 32,
    rounds: int = LEAST_ROUNDS,
    warm_up: int = WARM_UP,
    seed: int = 0,
    **common: object,
) -> Speeds:
    """Decode every prompt (a list of token ids) by itself in every way and plainly.

    ``ways``: label -> what `generate` takes, such as ``{"n-gram": dict(proposer=NGram(), k=4)}``;
    ``common`` (such as ``sampling``) is for all of them. All ways decode one prompt before any goes
    on to the next. The warm-up is ``warm_up`` tokens of the first prompt, and none if that is 0.

    Raises ValueError for fewer than three rounds, and for a proposer that drafts better in a later
    round, because it remembers the answers.
    """
    check_rounds(rounds)
    how = {PLAIN: common} | {label: common | dict(way) for label, way in ways.items()}
    for way in how.values() if warm_up else ():
        generate(target, [prompts[0]], **way, max_new_tokens=warm_up, seed=seed)
    runs = {label: _Runs() for label in how}
    for number in range(rounds):
        found: dict[str, list[Generation]] = {label: [] for label in how}
        for prompt in prompts:
            for label in in_turn(how, number):
                budget = {"max_new_tokens": max_new_tokens, "seed": seed}
                found[label].append(generate(target, [prompt], **how[label], **budget))
        for label, answers in found.items():
            runs[label].add(label, answers)
    speeds = {label: done.against(runs[PLAIN]) for label, done in runs.items()}
    return Speeds(speeds, rounds, max_new_tokens)


@dataclass
class _Runs:
    """One way in all rounds: the pooled trace of each, and the tokens of the first."""

    traces: list[Trace] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)

    def add(self, label: str, answers: Sequence[Generation]) -> None:
        trace = Trace.pool(answer.trace for answer in answers)
        if self.traces and len(trace.steps) != len(self.traces[0].steps):
            raise ValueError(
                f"{label} took {len(self.traces[0].steps)} steps in the first round and "
                f"{len(trace.steps)} in a later one; let it remember nothing between requests"
            )
        self.tokens = self.tokens or [answer.tokens[0] for answer in answers]
        self.traces.append(trace)

    def against(self, plain: _Runs) -> Speed:
        first = self.traces[0]
        return Speed(
            trace=first,
            tokens=self.tokens,
            seconds=Spread.of(trace.total_seconds / len(first.rows) for trace in self.traces),
            price=_ratio(self, plain, step_seconds),
            draft=_ratio(self, plain, _draft_seconds, step_seconds),
            speedup=_ratio(plain, self, lambda trace: trace.total_seconds / trace.num_tokens),
            steps=_ratio(plain, self, lambda trace: step_seconds(trace) / trace.tau),
        )


def step_seconds(trace: Trace) -> float:
    """Mean seconds of a step, the reading of the prompt left out."""
    return (trace.total_seconds - trace.seconds["prefill"]) / trace.num_forwards


def _draft_seconds(trace: Trace) -> float:
    """Mean seconds that the drafting takes of a step."""
    return trace.seconds.get("propose", 0.0) / trace.num_forwards


def _ratio(
    one: _Runs,
    other: _Runs,
    number: Callable[[Trace], float],
    number_of_other: Callable[[Trace], float] | None = None,
) -> Spread:
    """The spread of a ratio that is taken within each round."""
    pairs = zip(one.traces, other.traces, strict=True)
    divisor = number_of_other or number
    return Spread.of(number(above) / divisor(below) for above, below in pairs)
