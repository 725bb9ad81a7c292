"""Looks over the shoulder of a run: one `Decision` per written token, and an HTML picture of each.

Nothing is computed a second time: the production loop and its rules run unchanged, and two thin
wrappers write down what passes through them. `RecordingRandomness` keeps every uniform number with
the law it was compared with, and `WatchedRule` keeps the laws and the verdict of every step.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lab.decoding.decode import run
from specdec_lab.decoding.randomness import CounterRandomness, Lane, row_seeds
from specdec_lab.decoding.records import Context, Draft, RowStep, Scores, Verdict
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import choose_rule, laws
from specdec_lab.proposers.base import Proposer
from specdec_lab.study.figures.style import TOKEN_COLORS, TOKEN_MARKS
from specdec_lab.study.widgets import Panel

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
        """The verdict of the production rule."""
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


def panel(decisions: Sequence[Decision], start: int = 1) -> Panel:
    """A slider over the decisions of a run, counted from 1, and the picture of the chosen one."""
    return Panel(
        {"decision": list(range(1, len(decisions) + 1))},
        draw=lambda decision: picture(decisions[decision - 1]),
        describe=lambda decision: f"decision = {decision}: {sentence(decisions[decision - 1])}",
        start={"decision": start},
        live=True,
    )


def sentence(decision: Decision) -> str:
    """What happened, with the numbers."""
    where = f"Step {decision.step + 1}, place {decision.place + 1} of {decision.num_drafted}"
    wrote = f"the target writes {decision.written}"
    if decision.outcome == "plain":
        return f"Step {decision.step + 1}: nothing was drafted; {wrote}."
    if decision.outcome == "bonus":
        return f"Step {decision.step + 1}: all {decision.num_drafted} accepted; {wrote} for free."
    judged = (
        f"{where}: {decision.drafted} has p = {number(decision.target_prob)}, "
        f"q = {number(decision.draft_prob)}"
    )
    kept = decision.outcome == "accepted"
    end = "accepted." if kept else f"refused; {wrote} instead."
    if decision.coin is None:
        best = "is" if kept else "is not"
        return f"{judged}. It {best} the target's most probable token: {end}"
    inside = "inside" if kept else "outside"
    return (
        f"{judged}. The coin {number(decision.coin)} falls {inside} the stretch from "
        f"{number(decision.low)} to {number(decision.high)}: {end}"
    )


def number(value: float) -> str:
    """Three places, as far as they say something."""
    return "< 0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def picture(decision: Decision) -> str:
    """The decision as HTML that a lecture hall can read: text, bars, coin and what came of it."""
    parts = (_headline(decision), _bars(decision), _coin_line(decision), _outcome(decision))
    label = html.escape(sentence(decision), quote=True)
    return (
        f'<div role="group" aria-label="{label}" style="background:#ffffff;color:#111111;'
        f"font:20px/1.4 DejaVu Sans,Verdana,sans-serif;padding:14px 20px;max-width:920px;"
        f'min-height:430px;border:1px solid #bbbbbb;border-radius:6px">{"".join(parts)}</div>'
    )


def _chip(text: str, kind: str) -> str:
    """A token in the colour and with the mark of its kind."""
    strike = "text-decoration:line-through;" if kind == "rejected" else ""
    return (
        f'<span style="background:{TOKEN_COLORS[kind]};border:1px solid #555555;border-radius:4px;'
        f'padding:1px 8px;white-space:pre"><span style="{strike}">{html.escape(text)}</span> '
        f"{TOKEN_MARKS[kind]}</span>"
    )


def _headline(decision: Decision) -> str:
    judged = decision.drafted is not None
    question = f"place {decision.place + 1} of {decision.num_drafted}" if judged else "last token"
    asked = decision.drafted if judged else "?"
    return (
        f'<div style="font-size:15px;color:#555555">step {decision.step + 1} · {question}</div>'
        f'<div style="font-size:24px;margin:4px 0 10px">…{html.escape(decision.before)}'
        f'<b style="border-bottom:4px solid #111111;margin-left:6px">{html.escape(asked)}</b></div>'
    )


def _bars(decision: Decision) -> str:
    columns = [("target p", "target_prob", "#444444"), ("draft q", "draft_prob", "#de8f05")]
    if decision.outcome == "recovered":
        columns.append(("residual", "residual", "#d55e00"))
    heads = "".join(f'<th style="text-align:left;font-weight:600">{c[0]}</th>' for c in columns)
    rows = "".join(_bar_row(entry, decision, columns) for entry in decision.entries)
    return (
        '<table style="border-collapse:collapse;font-size:18px;line-height:1.25;color:#111111">'
        f'<tr><th style="text-align:left">token</th>{heads}</tr>{rows}</table>'
    )


def _bar_row(entry: Entry, decision: Decision, columns: list[tuple[str, str, str]]) -> str:
    weight = 700 if entry.token in (decision.drafted, decision.written) else 400
    cells = "".join(_bar(getattr(entry, field), color) for _, field, color in columns)
    return (
        f'<tr style="background:#ffffff"><td style="font-weight:{weight};text-align:left;'
        f'padding:1px 0;width:170px;white-space:pre">{html.escape(entry.token)}</td>{cells}</tr>'
    )


def _bar(value: float, color: str) -> str:
    return (
        '<td style="text-align:left;padding:1px 0;width:230px;white-space:nowrap">'
        f'<span style="display:inline-block;width:{max(1, round(150 * value))}px;height:14px;'
        f'background:{color}"></span> <span style="font-size:15px">{number(value)}</span></td>'
    )


def _coin_line(decision: Decision) -> str:
    """The line from 0 to 1: the stretch that accepts, and where the coin fell."""
    if decision.coin is None:
        return ""
    left, width = 100 * decision.low, 100 * decision.accept_prob
    return (
        '<div style="margin-top:12px;font-size:16px">the coin, a uniform number between 0 and 1: '
        f"it accepts with probability {number(decision.accept_prob)}</div>"
        '<div style="position:relative;height:62px;margin:2px 24px 0 8px">'
        '<div style="position:absolute;top:26px;width:100%;height:14px;background:#eeeeee;'
        'border:1px solid #555555"></div>'
        f'<div style="position:absolute;top:27px;left:{left:.2f}%;width:{width:.2f}%;height:14px;'
        f'background:{TOKEN_COLORS["accepted"]}"></div>'
        f'<div style="position:absolute;top:0;left:{100 * decision.coin:.2f}%;width:120px;'
        'margin-left:-60px;text-align:center;line-height:1.2">'
        f"{number(decision.coin)}<br>▼</div>"
        '<div style="position:absolute;top:40px;left:0;font-size:15px">0</div>'
        '<div style="position:absolute;top:40px;right:0;font-size:15px">1</div></div>'
    )


def _outcome(decision: Decision) -> str:
    judged = decision.drafted is not None
    chips = [_chip(decision.drafted, "rejected")] if decision.outcome == "recovered" else []
    chips.append(_chip(decision.written, decision.outcome))
    words = {
        "accepted": "accepted: the drafted token stays",
        "recovered": "refused: the target draws from the residual",
        "bonus": "all were accepted: one bonus token, drawn from p",
        "plain": "nothing was drafted: one plain token, drawn from p",
    }[decision.outcome]
    if judged and decision.coin is None and decision.outcome == "recovered":
        words = "refused: the target's own most probable token"
    return (
        f'<div style="margin-top:10px;font-size:22px;line-height:1.8">{" → ".join(chips)} '
        f"<b>{words}</b></div>"
    )


class BigramLaw(Proposer):
    """A plug-in that *draws* its draft: what followed this token so far, at random, by frequency.

    ``q(y | x)`` is proportional to how often ``y`` followed ``x`` in the text, plus ``smoothing``
    times the share of ``y`` in the whole text. A weak law, but a true one: it hands over the very
    tensor it drew from, and so the ratio rule may judge it.
    """

    def __init__(self, vocab_size: int, smoothing: float = 0.2) -> None:
        self.vocab_size, self.smoothing = vocab_size, smoothing

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """k tokens a row, each drawn from the law after the one before; probs is (B, k, V)."""
        token, tokens, probs = context.pending, [], []
        for place in range(k):
            probs.append(self._law(context, token))
            token = randomness.draw(probs[-1], context.lengths, Lane.DRAFT, place)
            tokens.append(token)
        count = torch.full_like(context.lengths, k)
        return Draft(torch.stack(tokens, 1), count, probs=torch.stack(probs, 1))

    def _law(self, context: Context, token: Tensor) -> Tensor:
        """What may follow ``token`` (B,), (B, V) float64."""
        places = torch.arange(context.tokens.shape[1], device=context.tokens.device)
        written = places < context.lengths[:, None]  # (B, L)
        text = context.tokens.where(written, 0)
        follows = written[:, 1:] & (text[:, :-1] == token[:, None])  # (B, L-1)
        share = written.double() * self.smoothing / context.lengths[:, None]
        law = share.new_zeros(len(token), self.vocab_size)
        law = law.scatter_add(1, text, share).scatter_add(1, text[:, 1:], follows.double())
        return law / law.sum(-1, keepdim=True)
