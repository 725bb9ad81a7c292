"""Looks over the shoulder of a run: one `Decision` per written token.

Nothing is computed a second time: the production loop and its rules run unchanged, and two thin
wrappers write down what passes through them. `RecordingRandomness` keeps every uniform number with
the law it was compared with, and `WatchedRule` keeps the laws and the verdict of every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from specdec_lab.decoding.decode import run
from specdec_lab.decoding.randomness import CounterRandomness, Lane, row_seeds
from specdec_lab.decoding.records import Context, Draft, RowStep, Scores, Verdict
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import check_chain, choose_rule, laws

if TYPE_CHECKING:
    from specdec_lab.decoding.randomness import Randomness
    from specdec_lab.decoding.target import Target

NUM_BARS = 6  # entries of p and q that are kept beside the drafted and the written token
TAIL = 10  # tokens of the text before a decision that are shown


@dataclass(frozen=True, slots=True)
class Entry:
    """One token's bars: the target's probability, the draft's, and its share of the residual."""

    token: str
    target_prob: float
    draft_prob: float
    residual: float


@dataclass(frozen=True, slots=True)
class Decision:
    """How one written token came about.

    ``drafted`` was accepted where the ``coin`` (one uniform number) fell into [``low``, ``high``):
    the width of that stretch is the chance of being accepted. Under greedy decoding there is no
    coin (None). ``outcome`` is ``accepted`` or ``recovered`` for a judged draft, ``bonus`` for the
    free token behind a fully accepted one, ``plain`` where nothing was drafted; the last two have
    no ``drafted``. ``written`` is what stands in the text now, ``draw`` the uniform that chose it
    from the last law of the step (None for an accepted token and under greedy decoding).
    """

    step: int
    place: int  # in the draft, from 0
    num_drafted: int
    before: str
    drafted: str | None
    target_prob: float | None
    draft_prob: float | None
    low: float
    high: float
    coin: float | None
    outcome: str
    draw: float | None
    written: str
    entries: list[Entry]

    @property
    def accept_prob(self) -> float:
        """The chance that the drafted token had: min(1, p/q), or p where q is one-hot."""
        return self.high - self.low


class RecordingRandomness:
    """Production randomness that also writes down each law asked about and the uniform it met.

    ``calls`` holds (lane, the probabilities or laws, the uniforms), oldest first.
    """

    def __init__(self, inner: CounterRandomness) -> None:
        self._inner = inner
        self.calls: list[tuple[Lane, Tensor, Tensor]] = []

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        """The production coin."""
        self.calls.append((lane, probability, self._inner.uniform(position, lane, offset)))
        return self._inner.coin(probability, position, lane, offset)

    def draw(self, probs: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """The production draw."""
        self.calls.append((lane, probs, self._inner.uniform(position, lane, offset)))
        return self._inner.draw(probs, position, lane, offset)

    def take(self) -> dict[Lane, tuple[Tensor, Tensor]]:
        """The calls since the last `take`, newest of each lane: lane -> (law, uniforms)."""
        taken = {lane: (law, uniform) for lane, law, uniform in self.calls}
        self.calls.clear()
        return taken


class WatchedRule:
    """A verification rule that is the production one, and remembers what it last saw and said."""

    def __init__(self, verify: str, randomness: RecordingRandomness) -> None:
        self._verify, self._randomness = verify, randomness

    def __call__(
        self,
        context: Context,
        draft: Draft,
        scores: Scores,
        sampling: Sampling,
        randomness: Randomness,
    ) -> Verdict:
        """The verdict of the production rule on a chain; ValueError for a tree."""
        check_chain(draft, "the step viewer")
        self._randomness.calls.clear()  # what the proposer drew
        rule = choose_rule(self._verify, draft)
        verdict = rule(context, draft, scores, sampling, randomness)
        self.calls = self._randomness.take()
        target_probs, draft_probs = laws(context, draft, scores, sampling)
        self.target_probs, self.draft_probs = target_probs[0], draft_probs[0]  # (N+1, V)
        self.draft, self.verdict = draft, verdict
        return verdict

    def stretch(self, place: int, token: int) -> tuple[float, float, float | None]:
        """Where the coin of a place had to fall to accept ``token``, and where it fell."""
        if Lane.ACCEPT in self.calls:
            probability, uniform = self.calls[Lane.ACCEPT]
            return 0.0, float(probability[0, place]), float(uniform[0, place])
        law = self.target_probs[place]
        low = float(law[:token].sum())
        if Lane.TARGET not in self.calls:  # greedy: the law is one-hot and nobody draws
            return low, low + float(law[token]), None
        return low, low + float(law[token]), float(self.calls[Lane.TARGET][1][0, place])

    def last_draw(self, place: int) -> float | None:
        """The uniform that chose the step's last token; None under greedy decoding."""
        if Lane.RECOVER in self.calls:
            return float(self.calls[Lane.RECOVER][1][0])
        return self.stretch(place, 0)[2]

    def residual(self, place: int) -> Tensor:
        """(p - q)+ of a place, normalised, (V,): the law of a recovered token; p for a bonus."""
        rest = (self.target_probs[place] - self.draft_probs[place]).clamp(min=0)
        total = rest.sum()
        return rest / total if total > 0 else self.target_probs[place]


def record(
    target: Target,
    prompt: Sequence[int],
    proposer: Any,
    *,
    k: int = 4,
    sampling: Sampling,
    seed: int,
    max_new_tokens: int,
    verify: str = "auto",
) -> list[Decision]:
    """Every decision of one run, one per written token, in order.

    Raises ValueError as `generate` does, and for ``verify="block"``, whose coins judge prefixes.
    """
    if verify not in ("auto", "match", "reject"):
        raise ValueError(f"The viewer shows auto, match and reject, not {verify!r}.")
    randomness = RecordingRandomness(CounterRandomness(row_seeds(seed, 1), target.device))
    rule = WatchedRule(verify, randomness)
    request = Request.checked(
        target, [list(prompt)], proposer, k, sampling, rule, max_new_tokens, None
    )
    text, decisions = list(prompt), []
    for number, step in enumerate(run(target, request, randomness)):
        for place in range(len(step.rows[0].tokens)):
            decisions.append(_decision(target, rule, number, place, step.rows[0], text))
            text.append(step.rows[0].tokens[place])
    return decisions


def _decision(
    target: Target, rule: WatchedRule, number: int, place: int, row: RowStep, text: list[int]
) -> Decision:
    outcome = row.kinds[place]
    judged = outcome in ("accepted", "recovered")
    drafted = int(rule.draft.tokens[0, place]) if judged else None
    low, high, coin = rule.stretch(place, drafted) if judged else (0.0, 1.0, None)
    p, q = rule.target_probs[place], rule.draft_probs[place]
    return Decision(
        step=number,
        place=place,
        num_drafted=int(rule.draft.count[0]),
        before="".join(visible(target, token) for token in text[-TAIL:]),
        drafted=visible(target, drafted) if judged else None,
        target_prob=float(p[drafted]) if judged else None,
        draft_prob=float(q[drafted]) if judged else None,
        low=low,
        high=high,
        coin=coin,
        outcome=outcome,
        draw=None if outcome == "accepted" else rule.last_draw(place),
        written=visible(target, row.tokens[place]),
        entries=_entries(target, rule, place, {drafted, row.tokens[place]} - {None}),
    )


def _entries(target: Target, rule: WatchedRule, place: int, shown: set[int]) -> list[Entry]:
    """The largest entries of p and of q with the tokens to show, largest p first, then the rest."""
    p, q, rest = rule.target_probs[place], rule.draft_probs[place], rule.residual(place)
    for law in (p, q):
        top = law.topk(NUM_BARS // 2)
        shown = shown | {i for i, x in zip(top.indices.tolist(), top.values, strict=True) if x > 0}
    ids = sorted(shown, key=lambda i: (-float(p[i]), i))
    bars = [Entry(visible(target, i), *(float(law[i]) for law in (p, q, rest))) for i in ids]
    others = (max(0.0, float(law.sum() - law[ids].sum())) for law in (p, q, rest))
    return [*bars, Entry("all others", *others)]


def visible(target: Target, token: int) -> str:
    """A token as text in which white space and end tokens can be seen."""
    text = target.decode([token], special=True) if target.tokenizer else f"<{token}>"
    for char, sign in ((" ", "␣"), ("\n", "↵"), ("\t", "⇥"), ("\r", "␍")):
        text = text.replace(char, sign)
    return text or "∅"


def as_steps(target: Target, rows: Sequence[RowStep]) -> list[dict]:
    """The steps of a row with their tokens made visible, as the timeline figure wants them."""
    return [
        {
            "drafted": [visible(target, token) for token in row.drafted],
            "tokens": [visible(target, token) for token in row.tokens],
            "kinds": row.kinds,
        }
        for row in rows
    ]


def as_records(decisions: Sequence[Decision]) -> list[dict]:
    """Decisions as plain values, ready for JSON."""
    return [asdict(decision) for decision in decisions]


def from_records(records: Sequence[dict]) -> list[Decision]:
    """The decisions that `as_records` wrote."""
    return [
        Decision(**{**record, "entries": [Entry(**entry) for entry in record["entries"]]})
        for record in records
    ]
