"""How methods and machines look where both stand in one picture."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from specdec_lab.study.figures.style import METHODS, Style

PALE = "#777777"
DRAFTS = {  # draft models by model: the blue of the method, a darker and a lighter one
    "int8": Style("#0173b2", "^", "-", "int8 twin"),
    "int4": Style("#013a5c", "^", "-", "int4 twin"),
    "trained": Style("#5aa9dd", ">", "-", "trained draft model"),
}
EAGLES = {  # by version, and whether it drafts trees
    (1, False): Style("#f2a173", "*", "-", "EAGLE-1"),
    (2, True): Style("#8f3f00", "p", "--", "EAGLE-2"),
    (3, False): Style("#d55e00", "h", "-", "EAGLE-3"),
    (3, True): Style("#6b2f00", "H", "--", "EAGLE-3, tree"),
}
TREES = {
    "mlp_speculator": Style("#7d3f73", "p", "--", "MLP speculator, tree"),
    "mtp": Style("#01523c", "p", "--", "MTP, tree"),
}
FILLS = (1.0, 0.0, 0.5)  # of the markers of the first, second, third machine


def look(label: str, config: str | Mapping[str, object]) -> Style:
    """Colour, marker and name of a method, told from its config: draft models by their model,
    EAGLE by its version, chains and trees apart.
    """
    options = {"method": config} if isinstance(config, str) else config
    method = str(options["method"])
    if method == "draft_model" and options.get("model") in DRAFTS:
        return DRAFTS[options["model"]]
    if method.startswith("eagle"):
        version = int(method.removeprefix("eagle").strip("_") or options.get("version", 3))
        return EAGLES[version, version == 2 or bool(options.get("tree"))]
    if method in TREES and options.get("tree"):
        return TREES[method]
    style = METHODS.get(method, METHODS["theory"])
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
