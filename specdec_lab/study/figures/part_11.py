"""Figures of notebook 11: who guesses what, training together, unrolling, acceptance and speed."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from specdec_lab.study.figures.drafters import alpha_by_depth
from specdec_lab.study.figures.learning_live import learning_live
from specdec_lab.study.figures.part_10 import by_depth, speed, temperature
from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure

INK = "#222222"
GREEN = METHODS["mtp"].color
TRUE, MADE = TOKEN_COLORS["bonus"], TOKEN_COLORS["accepted"]  # by the target; by the draft
ROWS = {"token": 0.0, "state": 1.0, "module": 2.0, "guess": 3.0}  # height in a panel
HEIGHT = 0.5
WIDE, NARROW = (0.0, 0.78), (0.14, 0.5)  # of a box: how far right of its column, and how wide


def alignment(data: dict) -> Figure:
    """Which state and which token make which guess, a panel a design, a column a drafted token.

    ``data``: ``panels``, each with ``title`` and ``steps``; a step has ``state``, ``token`` (None
    where none is read), ``module``, ``guess``, and ``made``, which of state and token are the
    draft's own.
    """
    panels = data["panels"]
    figure = new_figure(9.6, 4.1)
    figure.subplots_adjust(left=0.075, right=0.99, top=0.8, bottom=0.12, wspace=0.06)
    for number, (axes, panel) in enumerate(
        zip(figure.subplots(1, len(panels)), panels, strict=True)
    ):
        _panel(axes, panel)
        if number == 0:
            for name, y in ROWS.items():
                axes.text(-0.75, y, name, ha="right", va="center", fontsize=10, color=INK)
    figure.text(0.075, 0.03, "blue: from the target", fontsize=9.5, color=INK)
    figure.text(0.26, 0.03, "green: from the draft itself", fontsize=9.5, color=INK)
    figure.suptitle(
        "Independent heads do not know what was drafted; a chain does",
        x=0.02,
        ha="left",
        weight="bold",
        fontsize=12,
    )
    return figure


def _panel(axes: Axes, panel: dict) -> None:
    for x, step in enumerate(panel["steps"]):
        for row in ROWS:
            if step[row] is not None:
                own = row == "guess" or row in step["made"]
                right, width = NARROW if row == "state" else WIDE
                color = "#ffffff" if row == "module" else MADE if own else TRUE
                _box(axes, x + right, ROWS[row], width, step[row], color)
        _arrow(axes, (x, ROWS["module"] + 0.25), (x, ROWS["guess"] - 0.27))
        above = x + NARROW[0]
        _arrow(axes, (above, ROWS["state"] + 0.27), (above, ROWS["module"] - 0.27))
        if step["token"] is not None:
            _arrow(axes, (x - 0.27, ROWS["token"] + 0.27), (x - 0.27, ROWS["module"] - 0.27))
        if "state" in step["made"]:  # what the module before made
            _arrow(axes, (x - 0.62, ROWS["module"] - 0.22), (x - 0.12, ROWS["state"] + 0.12))
    axes.set(xlim=(-0.6, len(panel["steps"]) - 0.4), ylim=(-0.45, 3.45))
    axes.set_title(panel["title"], fontsize=10.5, weight="normal")
    axes.axis("off")


def _box(axes: Axes, x: float, y: float, width: float, text: str, color: str) -> None:
    corner = (x - width / 2, y - HEIGHT / 2)
    look = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": color, "edgecolor": INK}
    axes.add_patch(FancyBboxPatch(corner, width, HEIGHT, lw=1, **look))
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=look)


def trained_together(data: dict) -> Figure:
    """How often both tokens are foretold, for a head added later and for one trained together.

    ``data``: ``rows``, each with ``label``, ``first`` and ``second`` (shares that are right).
    """
    rows = data["rows"]
    figure = new_figure(7.2, 0.75 * len(rows) + 1.5)
    figure.subplots_adjust(left=0.24, right=0.95)
    axes = figure.subplots()
    bars = ((-0.19, "first", METHODS["none"].color), (0.19, "second", GREEN))
    for y, row in enumerate(rows):
        for shift, name, color in bars:
            axes.barh(y + shift, row[name], 0.36, color=color)
            words = f"{row[name]:.2f}  {name} token"
            axes.text(
                max(row[name], 0.5) + 0.01, y + shift, words, va="center", fontsize=9.5, color=INK
            )
    axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.4)
    axes.set(xlim=(0, 1.3), xlabel="share that is right (dotted: by chance)")
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    later, together = rows[0]["second"], rows[-1]["second"]
    words = f"Second token: {later:.2f} for a head added later, {together:.2f} trained together"
    figure.suptitle(words, x=0.02, ha="left", weight="bold", fontsize=12)
    return figure


FIGURES = {
    "11_alignment": alignment,
    "11_trained_together": trained_together,
    "11_learning": learning_live,
    "11_unrolled": alpha_by_depth,
    "11_by_depth": by_depth,
    "11_against": alpha_by_depth,
    "11_temperature": temperature,
    "11_speed": speed,
}
