"""The step-through viewer: a slider over the decisions of a run, each one drawn in HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from specdec_lab.study.decisions import Decision, Entry
from specdec_lab.study.figures.style import TOKEN_COLORS, TOKEN_MARKS
from specdec_lab.study.widgets import Panel


def panel(decisions: Sequence[Decision], start: int = 1) -> Panel:
    """A slider over the decisions of a run, counted from 1, and the picture of the chosen one."""
    return Panel(
        {"decision": list(range(1, len(decisions) + 1))},
        draw=lambda decision: picture(decisions[decision - 1]),
        describe=lambda decision: f"decision = {decision}: {sentence(decisions[decision - 1])}",
        start={"decision": start},
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
