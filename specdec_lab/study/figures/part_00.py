"""Figures of notebook 00: the promise (coloured tokens, one box a forward pass) and what k does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, TOKEN_MARKS, new_figure

# Inches. The text is set in a font of fixed width, so that its layout needs no measuring.
WIDTH, MARGIN = 8.0, 0.3
FONT_SIZE = 9.0
CHARACTER = 0.602 * FONT_SIZE / 72  # the advance of DejaVu Sans Mono
BOX, LINE, GAP = 0.23, 0.47, 0.085
TOP, BARS = 0.62, 1.5
KINDS = ("accepted", "bonus", "recovered", "plain")


@dataclass(frozen=True, slots=True)
class Box:
    """Where one token stands, in inches from the left and in lines from the top."""

    text: str
    kind: str
    left: float
    width: float
    line: int
    step: int


def promise(data: dict) -> Figure:
    """The text as coloured tokens, those of one forward pass joined, above two bars of passes.

    ``data``: ``k``, ``steps`` (per step ``[text, kind]`` pairs), ``plain_forwards``.
    """
    boxes = list(layout(data["steps"]))
    *_, last = layout([[token] for step in data["steps"] for token in step])
    lines = last.line + 1  # the most that any k needs, so that the picture keeps its size
    height = TOP + lines * LINE + BARS
    figure = new_figure(WIDTH, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    num_tokens, forwards = len(boxes), len(data["steps"])
    axes.text(MARGIN, 0.3, _title(num_tokens, forwards), fontsize=12, fontweight="bold")
    for box in boxes:
        _draw_box(axes, box)
    _legend(axes, TOP + lines * LINE + 0.08)
    _bars(axes, data, height - BARS + 0.62)
    return figure


def describe_promise(data: dict) -> str:
    """The picture in words: k, the passes, and how the drafted tokens fared."""
    kinds = [kind for step in data["steps"] for _, kind in step]
    forwards = len(data["steps"])
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds)
    return (
        f"k = {data['k']}: {len(kinds)} tokens in {forwards} target forwards instead of "
        f"{data['plain_forwards']}, tau = {len(kinds) / forwards:.2f} ({counts})."
    )


def layout(steps: list[list[list[str]]]) -> Iterator[Box]:
    """A box for every token, in lines that fit the width; a gap behind every step."""
    left, line = MARGIN, 0
    for number, step in enumerate(steps):
        for text, kind in step:
            shown = text.replace("\n", "↵").replace("\t", "→")
            width = max(len(shown), 1) * CHARACTER + 0.04
            if left + width > WIDTH - MARGIN:
                left, line = MARGIN, line + 1
            yield Box(shown, kind, left, width, line, number)
            left += width
        left += GAP


def by_k(data: dict) -> Figure:
    """Left tokens per forward against k, right what became of the drafted tokens.

    ``data``: lists ``k``, ``tau``, ``accepted``, ``drafted`` of equal length.
    """
    figure = new_figure(8, 3.4)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.19, top=0.85, wspace=0.24)
    left.plot(data["k"], data["tau"], **METHODS["ngram"].line())
    left.axhline(1, **METHODS["none"].line() | {"marker": ""})
    left.text(data["k"][-1], 1.04, "plain decoding", ha="right", color=METHODS["none"].color)
    left.text(data["k"][-1], data["tau"][-1] - 0.22, "n-gram", ha="right", color="#8a5600")
    left.set(ylim=(0.8, max(data["tau"]) + 0.25), xlabel="k, drafted tokens per step")
    left.set_ylabel("tokens per forward (tau)")
    left.set_xticks(data["k"])
    left.set_title("Longer drafts: more tokens a pass", fontsize=11)
    _drafted(right, data)
    return figure


def _drafted(axes: Axes, data: dict) -> None:
    places = range(len(data["k"]))
    wasted = [d - a for d, a in zip(data["drafted"], data["accepted"], strict=True)]
    axes.bar(places, data["accepted"], color=TOKEN_COLORS["accepted"], edgecolor="#333")
    axes.bar(
        places, wasted, bottom=data["accepted"], hatch="///", **{"color": "white"}, edgecolor="#888"
    )
    axes.set_xticks(places, data["k"])
    axes.grid(visible=False, axis="x")
    axes.text(
        places[-1], data["accepted"][-1] / 2, "accepted", ha="center", rotation=90, va="center"
    )
    middle = data["accepted"][-1] + wasted[-1] / 2
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(places[-1], middle, "not used", ha="center", va="center", rotation=90, bbox=box)
    axes.set(xlabel="k, drafted tokens per step", ylabel="drafted tokens, whole text")
    axes.set_title("and more drafting for nothing", fontsize=11)


def _title(num_tokens: int, forwards: int) -> str:
    if num_tokens == forwards:
        return f"Plain decoding: {num_tokens} tokens, {forwards} forward passes of the model"
    return f"The same {num_tokens} tokens in {forwards} forward passes instead of {num_tokens}"


def _draw_box(axes: Axes, box: Box) -> None:
    top = TOP + box.line * LINE
    color = TOKEN_COLORS[box.kind]
    axes.add_artist(
        Rectangle((box.left, top), box.width, BOX, facecolor=color, edgecolor="#444", linewidth=0.6)
    )
    middle = box.left + box.width / 2
    font = {"family": "DejaVu Sans Mono", "ha": "center", "parse_math": False}
    axes.text(
        middle,
        top + BOX / 2,
        box.text,
        fontsize=FONT_SIZE,
        va="center_baseline",
        color="#111",
        **font,
    )
    axes.text(middle, top + BOX + 0.1, TOKEN_MARKS[box.kind], fontsize=7, va="center", **font)


def _legend(axes: Axes, top: float) -> None:
    left = MARGIN
    for kind in KINDS:
        axes.add_artist(
            Rectangle((left, top), 0.24, 0.17, facecolor=TOKEN_COLORS[kind], edgecolor="#444")
        )
        axes.text(left + 0.12, top + 0.09, TOKEN_MARKS[kind], fontsize=8, ha="center", va="center")
        axes.text(left + 0.32, top + 0.09, kind, fontsize=10, va="center")
        left += 1.2
    axes.text(left + 0.05, top + 0.09, "joined boxes = one forward pass", fontsize=10, va="center")


def _bars(axes: Axes, data: dict, top: float) -> None:
    """Two bars: forward passes of plain decoding and of this run."""
    start, full = MARGIN + 1.35, WIDTH - 2 * MARGIN - 2.6
    run = ("ngram", f"n-gram, k = {data['k']}", len(data["steps"]))
    for row, (method, label, count) in enumerate((("none", "plain", data["plain_forwards"]), run)):
        y = top + 0.36 * row
        length = full * count / data["plain_forwards"]
        axes.add_artist(Rectangle((start, y), length, 0.24, facecolor=METHODS[method].color))
        axes.text(start - 0.1, y + 0.12, label, fontsize=10, ha="right", va="center")
        axes.text(start + length + 0.08, y + 0.12, f"{count} forwards", fontsize=10, va="center")


FIGURES = {"00_promise": promise, "00_by_k": by_k}
