"""Drafters beside each other: how much of each drafted token is taken."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.style import METHODS, Style, new_figure

APART = 0.075  # of the axis, between names at the ends of lines


def alpha_by_depth(data: dict) -> Figure:
    """alpha of each drafted token, given that those before it were taken, a line a drafter.

    ``data``: ``title``, and ``lines``, each with ``method``, ``label``, ``alpha`` (by depth; None
    where nothing was left to judge) and, where the colour alone does not tell, a ``dash``. A
    ``share`` other than alpha is named.
    """
    figure = new_figure(7.2, 3.9)
    figure.subplots_adjust(left=0.1, right=0.74)
    axes = figure.subplots()
    depth = max(len(line["alpha"]) for line in data["lines"])
    ends = []
    for line in data["lines"]:
        look = METHODS[line["method"]]
        points = [(d, a) for d, a in enumerate(line["alpha"], start=1) if a is not None]
        if points:
            how = look.line() | {"linestyle": line.get("dash", look.dash)}
            axes.plot(*zip(*points, strict=True), **how)
            ends.append((points[-1][1], f"{line['label']} {points[-1][1]:.2f}", look))
    top = min(1.02, 1.3 * max((a for line in data["lines"] for a in line["alpha"] if a), default=1))
    _name_ends(axes, depth, ends, APART * top)
    axes.set(xlabel="drafted token", ylabel=data.get("share", "alpha"))
    axes.set(xlim=(0.8, depth + 0.2), ylim=(0, top))
    axes.set_xticks(range(1, depth + 1))
    axes.set_title(data["title"])
    return figure


def _name_ends(
    axes: Axes, last: float, ends: Sequence[tuple[float, str, Style]], apart: float
) -> None:
    """Names beside the ends of lines at ``last``, moved apart where they would touch."""
    lowest = -1.0
    for height, name, look in sorted(ends, key=lambda end: end[0]):
        lowest = max(height, lowest + apart)
        where = {"xytext": (10, 0), "textcoords": "offset points", "va": "center"}
        how = {"color": look.color, "weight": "bold", "fontsize": 9.5, "annotation_clip": False}
        axes.annotate(name, (last, lowest), **where, **how)
