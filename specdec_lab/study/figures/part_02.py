"""Figures of notebook 02: one step, the steps of a run, best and worst case, and the coins."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, TOKEN_MARKS, new_figure

INK = "#222222"
COLUMNS = (-0.62, -0.51, -0.38, -0.25)  # of the table beside the coins, in units of its axis


def one_step(data: dict) -> Figure:
    """Which row of the scores judges which drafted token.

    ``data``: ``inputs`` (the pending token and the drafted ones), ``says`` (the target's choice
    after each of them), ``num_accepted``.
    """
    figure = new_figure(8, 2.9)
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.02, top=0.88)
    axes = _canvas(figure, len(data["inputs"]), 3.2)
    accepted, inputs, says = data["num_accepted"], data["inputs"], data["says"]
    for column, (token, answer) in enumerate(zip(inputs, says, strict=True)):
        kind = "plain" if column == 0 else "accepted" if column <= accepted else "rejected"
        _token(axes, column, 0.7, token, kind, mark=column > 0)
        used = column <= accepted
        last = "bonus" if accepted == len(inputs) - 1 else "recovered"
        answer_kind = ("accepted" if column < accepted else last) if used else "rejected"
        _token(axes, column, 2.4, answer, answer_kind, mark=column == accepted, faint=not used)
        _arrow(axes, (column, 1.0), (column, 2.1), INK if used else "#bbbbbb")
        if 0 < column <= accepted + 1 and column < len(inputs):
            good = column <= accepted
            color = "#029e73" if good else "#d55e00"
            _arrow(axes, (column - 0.62, 2.12), (column - 0.25, 1.0), color, "--")
            axes.text(
                column - 0.52, 1.5, "=" if good else "≠", color=color, fontsize=17, ha="right"
            )
        name = "pending" if column == 0 else f"draft {column}"
        axes.text(column, 0.18, name, ha="center", fontsize=10, color="#555555")
        axes.text(column, 2.93, f"row {column}", ha="center", fontsize=10, color="#555555")
    _row_name(axes, 2.4, "the target\nsays")
    _row_name(axes, 0.7, "one forward\nreads")
    axes.set_title("Row i of one forward judges draft i + 1")
    return figure


def timeline(data: dict) -> Figure:
    """Every step of a run as a line of tokens: what it wrote, and what it threw away.

    ``data``: ``steps``, each with ``drafted``, ``tokens`` and ``kinds``.
    """
    steps = data["steps"]
    widest = max(len(step["tokens"]) for step in steps)
    most_refused = max(len(step["drafted"]) - step["kinds"].count("accepted") for step in steps)
    figure = new_figure(8.2, 0.3 * len(steps) + 1.3)
    figure.subplots_adjust(left=0.01, right=0.99)
    axes = _canvas(figure, widest + most_refused + 0.4, len(steps) + 0.4)
    for number, step in enumerate(steps):
        y = len(steps) - number - 0.5
        _row_name(axes, y, str(number + 1))
        for column, (token, kind) in enumerate(zip(step["tokens"], step["kinds"], strict=True)):
            _token(axes, column, y, token, kind, height=0.62)
        refused = step["drafted"][step["kinds"].count("accepted") :]
        for column, token in enumerate(refused):
            _token(axes, widest + 0.4 + column, y, token, "rejected", height=0.62)
    axes.text(-0.45, len(steps) + 0.15, "written", fontsize=11, weight="bold")
    axes.text(widest - 0.05, len(steps) + 0.15, "thrown away", fontsize=11, weight="bold")
    _legend(axes, ("plain", "accepted", "recovered", "bonus", "rejected"))
    total = sum(len(step["tokens"]) for step in steps)
    axes.set_title(f"{total} tokens in {len(steps)} target forwards", pad=14)
    return figure


def best_and_worst(data: dict) -> Figure:
    """Tokens written after each target forward, between the two bounds.

    ``data``: ``k`` and ``curves``: a list of ``method``, ``label`` and ``tokens`` (after each
    forward, the first one 0).
    """
    figure = new_figure(6.6, 3.8)
    axes = figure.subplots()
    top = 1.3 * max(curve["tokens"][-1] for curve in data["curves"])
    for slope in (1, data["k"] + 1):
        axes.plot([0, top / slope], [0, top], "--", color=METHODS["theory"].color, lw=1.4)
    for curve in data["curves"]:
        style = METHODS.get(curve["method"])
        line = style.line() if style else {"color": INK, "marker": "D", "linestyle": "-"}
        forwards = range(len(curve["tokens"]))
        axes.plot(forwards, curve["tokens"], **line, markersize=4)
        axes.annotate(
            curve["label"],
            (forwards[-1], curve["tokens"][-1]),
            xytext=(14, -4 if curve["method"] == "none" else 4),
            textcoords="offset points",
            va="top" if curve["method"] == "none" else "center" if style else "bottom",
            fontsize=10,
            color=line["color"],
            weight="bold",
        )
    axes.set(xlabel="target forwards", ylabel="tokens written", xlim=(0, top), ylim=(0, top))
    axes.set_title("A good guess saves forwards, a bad one adds none")
    return figure


def coins(data: dict) -> Figure:
    """Every judged token with the stretch of [0, 1) that accepts it and the coin that fell.

    ``data``: ``decisions`` as `decisions.as_records` writes them (those with a coin are drawn).
    """
    judged = [d for d in data["decisions"] if d["coin"] is not None]
    figure = new_figure(8, 0.26 * len(judged) + 1.6)
    figure.subplots_adjust(left=0.33, right=0.83, top=1 - 0.8 / figure.get_figheight())
    axes = figure.subplots()
    for line, decision in enumerate(judged):
        _coin(axes, line, decision)
    for x, name in zip(COLUMNS, ("step", "p", "q", "drafted"), strict=True):
        axes.text(x, -1.1, name, va="center", fontsize=10, weight="bold")
    axes.text(1.02, -1.1, "written", va="center", fontsize=10, weight="bold")
    axes.set_yticks([])
    axes.set(xlim=(0, 1), ylim=(len(judged) - 0.4, -0.6), xlabel="coin (uniform number)")
    axes.set_title("A drafted token stays where its coin falls on green", pad=24, x=-0.62)
    return figure


def _coin(axes: Axes, line: int, decision: dict) -> None:
    kept = decision["outcome"] == "accepted"
    axes.barh(line, 1, height=0.62, color="#f1f1f1", zorder=1)
    axes.barh(
        line,
        decision["high"] - decision["low"],
        left=decision["low"],
        height=0.62,
        color=TOKEN_COLORS["accepted"],
        zorder=2,
    )
    axes.plot(decision["coin"], line, "o" if kept else "X", color=INK, markersize=7, zorder=3)
    probs = (f"{decision['target_prob']:.3f}", f"{decision['draft_prob']:.3f}")
    values = (str(decision["step"] + 1), *probs, decision["drafted"])
    for x, text in zip(COLUMNS, values, strict=True):
        axes.text(x, line, text, va="center", fontsize=9)
    mark = TOKEN_MARKS[decision["outcome"]]
    axes.text(1.02, line, f"{decision['written']} {mark}", va="center", fontsize=9)


def _canvas(figure: Figure, columns: float, height: float) -> Axes:
    axes = figure.subplots()
    axes.set(xlim=(-1.3, columns - 0.4), ylim=(0, height))
    axes.axis("off")
    return axes


def _token(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    kind: str,
    *,
    height: float = 0.5,
    mark: bool = True,
    faint: bool = False,
) -> None:
    """A token in its box; the mark says its kind to who sees no colours."""
    refused = kind == "rejected"
    axes.add_patch(
        FancyBboxPatch(
            (x - 0.45, y - height / 2),
            0.9,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=TOKEN_COLORS[kind],
            edgecolor="#aaaaaa" if refused else "#555555",
            linestyle="--" if refused else "-",
        )
    )
    label = f"{text} {TOKEN_MARKS[kind]}" if mark else text
    color = "#999999" if faint else "#777777" if refused else INK
    size = 9.5 if len(label) <= 8 else 8.5 if len(label) <= 10 else 7.5
    axes.text(x, y, label, ha="center", va="center", fontsize=size, color=color)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, dash: str = "-"
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=13, color=color, lw=1.6, linestyle=dash
        )
    )


def _row_name(axes: Axes, y: float, text: str) -> None:
    axes.text(-0.6, y, text, ha="right", va="center", fontsize=10, color="#555555")


def _legend(axes: Axes, kinds: tuple[str, ...]) -> None:
    for column, kind in enumerate(kinds):
        name = "refused" if kind == "rejected" else kind
        axes.text(
            0.08 + 0.17 * column,
            -0.02,
            f" {TOKEN_MARKS[kind]} {name} ",
            transform=axes.transAxes,
            va="top",
            fontsize=10,
            bbox={"facecolor": TOKEN_COLORS[kind], "edgecolor": "#777777", "boxstyle": "round"},
        )


FIGURES = {
    "02_one_step": one_step,
    "02_timeline": timeline,
    "02_best_and_worst": best_and_worst,
    "02_coins": coins,
}
