"""What happened during a generation, and every metric computed from it, each defined once.

All ratios are pooled: sums over all prompts first, one division last. ``interval`` gives their
spread over prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specdec_lab.decoding.records import RowStep, Step

SUMMARY = (
    *("num_tokens", "num_forwards", "num_drafted", "num_accepted", "num_rejected"),
    *("tau", "alpha", "draft_acceptance_rate", "draft_coverage"),
    *("acceptance_by_position", "alpha_by_position"),
    *("ttft", "itl", "itl_per_burst", "tokens_per_second", "total_seconds", "time_share"),
)


@dataclass
class Trace:
    """The steps of every row (prompt), and where the time went.

    Counters follow the committed output: what an end token, a stop string or the budget cut off was
    never there. Ratios are ``None`` when nothing was counted.
    """

    rows: list[list[RowStep]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    num_forwards: int = 0  # target forwards, whatever the batch size; prefill not counted

    def add(self, step: Step) -> None:
        """Count one step."""
        if not self.rows:
            self.rows = [[] for _ in step.rows]
        for row, done in zip(self.rows, step.rows, strict=True):
            if done is not None:
                row.append(done)
        for part, spent in step.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + spent
        self.num_forwards += 1

    @staticmethod
    def pool(traces: Iterable[Trace]) -> Trace:
        """One trace of all rows of several, for pooled ratios."""
        pooled = Trace()
        for trace in traces:
            pooled.rows.extend(trace.rows)
            pooled.num_forwards += trace.num_forwards
            for part, spent in trace.seconds.items():
                pooled.seconds[part] = pooled.seconds.get(part, 0.0) + spent
        return pooled

    @property
    def steps(self) -> list[RowStep]:
        """The steps of all rows, one after the other."""
        return [step for row in self.rows for step in row]

    @property
    def num_tokens(self) -> int:
        """Tokens committed."""
        return sum(len(step.tokens) for step in self.steps)

    @property
    def num_drafted(self) -> int:
        """Drafted tokens that were handed to the target and lie before the cut."""
        return sum(len(step.drafted) for step in self.steps)

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that were committed."""
        return sum(step.num_accepted for step in self.steps)

    @property
    def num_rejected(self) -> int:
        """Steps that refused a drafted token (at most one refusal a step; what lies behind is not
        judged).
        """
        return sum(step.was_refused for step in self.steps)

    @property
    def alpha(self) -> float | None:
        """Accepted / (accepted + rejected): the chance that a judged token is accepted; in a tree,
        that one of the nodes judged together, the children of a node, is.
        """
        return _ratio(self.num_accepted, self.num_accepted + self.num_rejected)

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted; falls with k at constant alpha, as tokens behind a refusal count
        too.
        """
        return _ratio(self.num_accepted, self.num_drafted)

    @property
    def tau(self) -> float | None:
        """Tokens per target forward of a row, the bonus or recovered one included; plain decoding
        is 1.
        """
        return _ratio(self.num_tokens, len(self.steps))

    @property
    def draft_coverage(self) -> float | None:
        """Share of steps in which anything was drafted."""
        return _ratio(sum(bool(step.drafted) for step in self.steps), len(self.steps))

    @property
    def acceptance_by_position(self) -> list[float]:
        """Marginal: the share of drafts that were accepted at position i, in a tree at depth i + 1
        (vLLM's per-position rate).
        """
        drafts = [step for step in self.steps if step.drafted]
        return [
            sum(s.num_accepted > i for s in drafts) / len(drafts) for i in range(self.draft_depth)
        ]

    @property
    def draft_depth(self) -> int:
        """The deepest position that was drafted."""
        return max((max(step.depths) for step in self.steps if step.drafted), default=0)

    @property
    def alpha_by_position(self) -> list[float | None]:
        """Conditional: accepted at position i / judged at position i, that is with all before it
        accepted; in a tree by depth.
        """
        positions = range(self.draft_depth)
        accepted = [sum(s.num_accepted > i for s in self.steps) for i in positions]
        stopped = [s.num_accepted for s in self.steps if s.was_refused]
        refused = [stopped.count(i) for i in positions]
        return [_ratio(a, a + r) for a, r in zip(accepted, refused, strict=True)]

    @property
    def total_seconds(self) -> float:
        """Engine time: prefill and all steps, the reader's own time not counted."""
        return sum(self.seconds.values())

    @property
    def tokens_per_second(self) -> float | None:
        """Committed tokens of all rows per second of engine time."""
        return _ratio(self.num_tokens, self.total_seconds)

    @property
    def ttft(self) -> float | None:
        """Time to first token, mean over rows, in seconds."""
        firsts = [row[0].at for row in self.rows if row]
        return _ratio(sum(firsts), len(firsts))

    @property
    def itl(self) -> float | None:
        """Inter-token latency per token, in seconds: (last - first) / (tokens - 1), pooled over
        rows.
        """
        waited = sum(row[-1].at - row[0].at for row in self.rows if row)
        gaps = sum(sum(len(s.tokens) for s in row) - 1 for row in self.rows if row)
        return _ratio(waited, gaps)

    @property
    def itl_per_burst(self) -> float | None:
        """Time between bursts, in seconds: what a reader waits, as the tokens of a step arrive
        together.
        """
        waited = sum(row[-1].at - row[0].at for row in self.rows if row)
        return _ratio(waited, sum(len(row) - 1 for row in self.rows if row))

    @property
    def time_share(self) -> dict[str, float]:
        """Share of engine time by part: prefill, propose, score, verify, other."""
        total = self.total_seconds
        return {part: spent / total for part, spent in self.seconds.items()} if total else {}

    def interval(
        self, metric: Callable[[Trace], float | None], level: float = 0.95, seed: int = 0
    ) -> tuple[float, float] | None:
        """Bootstrap interval of ``metric`` over prompts (2,000 resamples); ``None`` for fewer than
        two prompts.
        """
        if len(self.rows) < 2:
            return None
        picks = np.random.default_rng(seed).integers(len(self.rows), size=(2000, len(self.rows)))
        values = [metric(Trace([self.rows[i] for i in pick])) for pick in picks]
        known = [value for value in values if value is not None]
        if not known:
            return None
        low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def summary(self) -> dict[str, object]:
        """Every metric by its name, ready for JSON."""
        return {name: getattr(self, name) for name in SUMMARY}


def repeated_ngram_share(tokens: Sequence[int], n: int = 4) -> float:
    """Share of the n-grams of an output that it had already written; 0 for one shorter than n.

    A text that goes round in circles is easy to copy. So this number stands beside every acceptance
    number ("rep4"), and outputs above 0.3 are reported apart.
    """
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
