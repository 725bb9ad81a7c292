"""Where the time of a step goes, beside the time that reading the weights takes at least; from
`measure cost`.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import PALE
from specdec_lab.study.figures.style import METHODS, new_figure

PARTS = {  # recorded part -> colour, name and colour of its number
    "products": ("#3f6e9a", "products", "white"),
    "head": ("#b3cde3", "head", "black"),
    "rest": ("#fdb462", "attention, norms, rest", "black"),
    "verify": ("#5ab4ac", "verify", "black"),
    "host": ("#c4c4c4", "host", "black"),
    "propose": ("#dce9f5", "drafting", "black"),
}
WIDE = 0.035  # share of the axis from which a part's number is written into it


def profile(data: Mapping[str, dict]) -> Figure:
    """Milliseconds of a plain step and of one that drafts, part by part; a chart a machine.

    ``data``: machine -> what `measure cost` records.
    """
    figure = new_figure(8.6, 1.15 + 1.45 * len(data))
    height = figure.get_figheight()
    charts = figure.subplots(len(data), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(0.075, 0.95 / height, 0.985, 1 - 0.6 / height, hspace=0.75)
    for axes, (machine, recording) in zip(charts, data.items(), strict=True):
        _bars(axes, recording["profile"])
        axes.annotate(machine, (1, 1), (0, 4), "axes fraction", ha="right", **NAME)
    charts[-1].set_xlabel("milliseconds of one step")
    handles, labels = charts[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="lower center", **COMPACT)
    figure.suptitle(_finding(data), x=0.012, y=1 - 0.06 / height, ha="left", va="top", **BOLD)
    return figure


BOLD = {"weight": "bold", "fontsize": 12}
COMPACT = {"fontsize": 9, "handlelength": 1.2, "handletextpad": 0.5, "columnspacing": 1.1}
NAME = {"textcoords": "offset points", "color": PALE, "fontsize": 9.5}


def describe_profile(data: Mapping[str, dict]) -> str:
    """The picture in words: every step over the time of reading the weights."""
    said = []
    for machine, recording in data.items():
        times = (f"{name} {value:.2f}" for name, value in _times(recording["profile"]).items())
        said.append(f"{machine}: {', '.join(times)}")
    return f"Parts of a step. In times of reading all weights, {'; '.join(said)}."


def _times(recorded: Mapping) -> dict[str, float]:
    """Every step over the time of reading the weights."""
    return {
        name: step["step"] / recorded["read_seconds"] for name, step in recorded["steps"].items()
    }


def _bars(axes: Axes, recorded: Mapping) -> None:
    """A bar for each kind of step, its parts one behind the other, and the limit."""
    steps, limit = recorded["steps"], 1e3 * recorded["read_seconds"]
    widest = 1.08e3 * max(sum(step[part] for part in PARTS) for step in steps.values())
    for part, (color, label, ink) in PARTS.items():
        shown = label
        for place, step in enumerate(steps.values()):
            left = 1e3 * sum(max(step[other], 0) for other in list(PARTS)[: _place(part)])
            width = 1e3 * max(step[part], 0)
            axes.barh(place, width, 0.66, left, color=color, edgecolor="white", label=shown)
            shown = None  # one entry in the legend for both bars
            if width > WIDE * widest:
                middle = {"ha": "center", "va": "center", "fontsize": 9, "color": ink, "zorder": 5}
                behind = {"facecolor": color, "edgecolor": "none", "pad": 1.5}  # hides the limit
                axes.text(left + width / 2, place, f"{width:.1f}", bbox=behind, **middle)
    axes.axvline(limit, ls="--", color=METHODS["theory"].color, lw=1.6)
    label = f"reading {recorded['weight_bytes'] / 1e6:.0f} MB of weights"
    axes.annotate(label, (limit, 1), (0, 4), xycoords=("data", "axes fraction"), **NAME)
    axes.set_yticks(range(len(steps)), list(steps))
    axes.set(xlim=(0, widest), ylim=(len(steps) - 0.5, -0.5))
    axes.grid(visible=False, axis="y")


def _place(part: str) -> int:
    return list(PARTS).index(part)


def _finding(data: Mapping[str, dict]) -> str:
    """What every machine shows for a plain step."""
    found = (next(iter(_times(recording["profile"]).values())) for recording in data.values())
    times = " and ".join(f"{value:.2f}" for value in found)
    return f"A plain step takes {times} times as long as reading its weights"
