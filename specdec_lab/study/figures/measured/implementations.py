"""A proposal of suffix decoding in our tensors and in other libraries, from `measure outside`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from specdec_lab.study.figures.measured.looks import fill, machine_marks
from specdec_lab.study.figures.style import METHODS, Style, new_figure

LOOKS = {
    "ours": replace(METHODS["suffix"], label="ours"),
    "arctic": Style("#1b5e84", "o", "--", "arctic, as a proposer"),
    "arctic_calls": Style("#1b5e84", ".", ":", "arctic, its calls alone"),
    "suffix_gpu": Style("#8a8a8a", "s", "-.", "suffix-gpu"),
}


def implementations(data: Mapping[str, dict]) -> Figure:
    """Microseconds of a proposal against the history: median of the rounds, and their spread.

    ``data``: machine -> what `measure outside` records.
    """
    figure = new_figure(8.0, 4.3)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.115, right=0.97, bottom=0.27, top=0.91)
    sizes = list(next(iter(data.values()))["proposals"])
    for number, recording in enumerate(data.values()):
        for name, style in _found(recording).items():
            _line(axes, recording["proposals"], name, style, number)
    axes.set_xticks(range(len(sizes)), [f"{int(size):,}" for size in sizes])
    axes.set(xlabel="tokens of earlier answers", ylabel="microseconds", yscale="log")
    axes.set_xlim(-0.3, len(sizes) - 0.7)
    axes.yaxis.set_major_formatter("{x:,g}")
    entries = {name: style for found in data.values() for name, style in _found(found).items()}
    for y, handles in ((0.055, [*map(_mark, entries.values())]), (0.0, machine_marks(data))):
        how = {"ncols": len(handles), "loc": "lower center", "fontsize": 9.5}
        figure.legend(handles=handles, bbox_to_anchor=(0.53, y), **how)
    axes.set_title("What one proposal of suffix decoding costs, by who wrote it")
    return figure


def describe_implementations(data: Mapping[str, dict]) -> str:
    """The picture in words: microseconds at the longest history, machine by machine."""
    said = []
    for machine, recording in data.items():
        size, found = list(recording["proposals"].items())[-1]
        times = (f"{name} {entry['median']:,.0f}" for name, entry in found.items())
        said.append(f"{machine}, {int(size):,} tokens: {', '.join(times)}")
    return f"Microseconds of one proposal of suffix decoding. {'; '.join(said)}."


def _found(recording: Mapping) -> dict[str, Style]:
    """The implementations of a recording and their looks, ours first."""
    names = dict.fromkeys(name for entry in recording["proposals"].values() for name in entry)
    known = {name: look for name, look in LOOKS.items() if name in names}
    return known | {n: Style("#8a8a8a", "x", ":", n) for n in names if n not in known}


def _line(axes: Axes, proposals: Mapping, name: str, style: Style, machine: int) -> None:
    points = [
        (place, found[name]) for place, found in enumerate(proposals.values()) if name in found
    ]
    places = [place for place, _ in points]
    spans = [[entry[end] for _, entry in points] for end in ("low", "high")]
    middles = [entry["median"] for _, entry in points]
    axes.vlines(places, *spans, color=style.color, lw=1.6)
    axes.plot(places, middles, **style.line(), mfc=fill(style.color, machine))


def _mark(style: Style) -> Line2D:
    return Line2D([], [], label=style.label, **style.line())
