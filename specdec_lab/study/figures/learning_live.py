"""A draft while it learns: what it is trained for, and what comes of it on texts it never saw."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.learning import method_style
from specdec_lab.study.figures.style import new_figure

DASHES = ("-", "--", "-.", ":")  # of drafted token 1, 2, ...
LEAST_JUDGED = 20  # places that a share needs to be worth a point


def learning_live(data: dict) -> Figure:
    """Loss on the texts learned (left), acceptance by depth on held-out ones (right), by step.

    ``data`` is `LiveRun.figure_data`: ``method``, ``tokens``, ``cap`` and ``curve``, whose entries
    have ``step``, ``loss``, ``alpha`` and ``judged`` (places by depth; too few are not drawn).
    """
    figure = new_figure(8.6, 3.5)
    figure.subplots_adjust(left=0.09, right=0.86, wspace=0.28, bottom=0.17, top=0.8)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    look, curve = method_style(data["method"]), data["curve"]
    left.plot([e["step"] for e in curve], [e["loss"] for e in curve], color=look.color, marker="o")
    left.set(xlabel="step", ylabel="loss (smoothed)", ylim=(0, None))
    left.set_title("on the texts it learns", fontsize=11, weight="normal")
    _acceptance(right, data)
    first, last = curve[0]["alpha"][0], curve[-1]["alpha"][0]
    figure.suptitle(
        f"{look.label}, {data['tokens']:,} tokens: first alpha {first:.2f} → {last:.2f}",
        x=0.02,
        ha="left",
        weight="bold",
        fontsize=12,
    )
    return figure


def _acceptance(axes: Axes, data: dict) -> None:
    """A line for each drafted token, and the most that the draft vocabulary lets the first have."""
    color, ends = method_style(data["method"]).color, []
    for depth, dash in zip(range(len(data["curve"][0]["alpha"])), DASHES, strict=False):
        points = [e for e in data["curve"] if e["judged"][depth] >= LEAST_JUDGED]
        if points:
            shares = [e["alpha"][depth] for e in points]
            axes.plot([e["step"] for e in points], shares, color=color, linestyle=dash)
            ends.append((shares[-1], f"token {depth + 1}"))
    axes.axhline(data["cap"], color="black", linestyle="--", linewidth=1.4)
    ends.append((data["cap"], "cap"))
    axes.set(xlabel="step", ylabel="alpha", ylim=(0, 1.02))
    label_ends(axes, ends)
    axes.set_title("on texts it never saw", fontsize=11, weight="normal")


def label_ends(axes: Axes, ends: list[tuple[float, str]], apart: float = 0.075) -> None:
    """Names and heights beside the right edge, moved ``apart`` where they would touch: what is
    given suits shares from 0 to 1.
    """
    lowest = -1.0
    for height, name in sorted(ends):
        lowest = max(height, lowest + apart)
        place = {"xycoords": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
        axes.annotate(f" {name} {height:.2f}", (1, lowest), annotation_clip=False, **place)
