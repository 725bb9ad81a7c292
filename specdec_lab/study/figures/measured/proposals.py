"""What a proposal of suffix decoding costs by the size of its memory, from `measure proposers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import fill, machine_marks
from specdec_lab.study.figures.style import METHODS, new_figure


def proposals(data: Mapping[str, dict]) -> Figure:
    """Milliseconds of a proposal (left) and of sorting the memory anew (right), by its length.

    ``data``: machine -> what `measure proposers` records.
    """
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.25, top=0.87, wspace=0.24)
    for number, recording in enumerate(data.values()):
        found = recording["histories"]
        _line(left, [one["proposal_ms"] for one in found], number)
        _line(right, [1e3 * one["sort_seconds"] for one in found], number)
    histories = next(iter(data.values()))["histories"]
    for axes in (left, right):
        axes.set_xticks(range(len(histories)), [_short(one["tokens"]) for one in histories])
        axes.set(xlabel="tokens remembered", xlim=(-0.4, len(histories) - 0.6))
    left.set(ylabel="milliseconds", ylim=(0, 1.12 * left.get_ylim()[1]))
    right.set_yscale("log")
    right.set_ylim(None, 3 * right.get_ylim()[1])
    right.yaxis.set_major_formatter("{x:g}")
    left.set_title(f"A draft of {next(iter(data.values()))['suffix_k']}, every step", fontsize=11)
    right.set_title("Sorting the memory, between requests", fontsize=11)
    figure.legend(handles=machine_marks(data), ncols=len(data), loc="lower center", fontsize=9.5)
    return figure


def describe_proposals(data: Mapping[str, dict]) -> str:
    """The picture in words: milliseconds of a proposal by machine and length."""
    said = []
    for machine, recording in data.items():
        times = (f"{h['proposal_ms']:.2f} at {h['tokens']:,}" for h in recording["histories"])
        said.append(f"{machine}: {', '.join(times)} tokens")
    return f"Milliseconds of a proposal of suffix decoding, {'; '.join(said)}."


def _line(axes: Axes, values: Sequence[float], machine: int) -> None:
    style = METHODS["suffix"]
    inside = fill(style.color, machine)
    axes.plot(range(len(values)), values, **style.line(), mfc=inside)
    if not machine:
        for place, value in enumerate(values):
            how = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
            axes.annotate(
                f"{value:.2g}" if value < 100 else f"{value:.0f}", (place, value), (0, 8), **how
            )


def _short(tokens: int) -> str:
    """1,000 as 1 k and 1,000,000 as 1 M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens // size} {letter}"
    return str(tokens)
