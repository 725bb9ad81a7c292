"""How methods and machines look where both stand in one picture."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from specdec_lab.study.figures.style import METHODS, Style

PALE = "#777777"
TWINS = {"int8": "#0173b2", "int4": "#013a5c"}  # the blue of draft models, and a darker one
FILLS = (1.0, 0.0, 0.5)  # of the markers of the first, second, third machine


def look(label: str, config: str | Mapping[str, object]) -> Style:
    """Colour, marker and name of a method, told from its config; twins by their bits."""
    method = config if isinstance(config, str) else str(config["method"])
    style = METHODS.get(method, METHODS["theory"])
    bits = "" if isinstance(config, str) else str(config.get("model"))
    if method == "draft_model" and bits in TWINS:
        return Style(TWINS[bits], style.marker, style.dash, f"{bits} twin")
    return style if method in METHODS else Style(style.color, "o", "-", label)


def lighter(color: str, share: float) -> str:
    """The colour mixed with white."""
    return to_hex([value + (1 - value) * share for value in to_rgb(color)])


def fill(color: str, machine: int) -> str:
    """Inside of a marker: full for the first machine, white for the second, pale for others."""
    return lighter(color, 1 - FILLS[min(machine, len(FILLS) - 1)])


def machine_marks(machines: Mapping[str, dict]) -> list[Line2D]:
    """A legend's entries that say which fill is which machine."""
    return [
        Line2D([], [], ls="", marker="o", color=PALE, mfc=fill(PALE, number), label=name)
        for number, name in enumerate(machines)
    ]


def at_one(axes: Axes) -> None:
    """The line of plain decoding in a chart of speed-ups."""
    axes.axhline(1, color=METHODS["none"].color, lw=1.4, zorder=1)
