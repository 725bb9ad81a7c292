"""What drafts are worth when several requests run at once, from `measure batch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import PALE, at_one, fill, look
from specdec_lab.study.figures.style import METHODS, Style, new_figure

COLUMNS = (  # metric, its axis, the title of the first row
    ("speedup", "speed-up (plain = 1)", "What a draft is worth"),
    ("tokens_per_second", "tokens per second", "Throughput"),
    ("latency_median", "seconds to the answer", "Latency (median)"),
)

TITLE = {"weight": "bold", "fontsize": 12}
ABOVE = {"xycoords": "axes fraction", "textcoords": "offset points", "color": PALE, "fontsize": 9.5}


def batches(data: Mapping[str, dict]) -> Figure:
    """Speed-up, throughput and latency against the batch, one row of charts a machine.

    ``data``: machine -> what `measure batch` records.
    """
    figure = new_figure(10.4, 1.0 + 3.1 * len(data))
    height = figure.get_figheight()
    rows = figure.subplots(len(data), len(COLUMNS), squeeze=False)
    figure.subplots_adjust(
        left=0.07, right=0.985, bottom=1 / height, top=1 - 0.8 / height, wspace=0.29, hspace=0.55
    )
    for (machine, recording), row in zip(data.items(), rows, strict=True):
        for axes, (metric, words, title) in zip(row, COLUMNS, strict=True):
            _lines(axes, recording, metric)
            axes.set(xlabel="requests at once", ylabel=words)
            axes.set_title(title, fontsize=11)
        at_one(row[0])
        row[0].annotate(machine, (0, 1), (-38, 24), **ABOVE)
    _same_height([row[0] for row in rows])
    lines = {line.get_label(): line for row in rows for line in row[1].lines}
    figure.legend(lines.values(), lines, ncols=len(lines), loc="lower center", fontsize=9.5)
    figure.suptitle(_finding(data), x=0.012, y=1 - 0.06 / height, ha="left", va="top", **TITLE)
    return figure


def describe_batches(data: Mapping[str, dict]) -> str:
    """The picture in words: the best speed-up of every batch, machine by machine."""
    said = []
    for machine, recording in data.items():
        best = {batch: max(_speedups(ways)) for batch, ways in recording["batches"].items()}
        said.append(f"{machine}: " + ", ".join(f"batch {b} {s:.2f}" for b, s in best.items()))
    return "Speed-up, throughput and latency by batch. Best speed-up, " + "; ".join(said) + "."


def _lines(axes: Axes, recording: Mapping, metric: str) -> None:
    """A metric of every way of decoding against the batch; k = 2 is dotted and hollow."""
    table = recording["batches"]
    places = range(len(table))
    for name, style, k in _ways(recording):
        if metric == "speedup" and not k:
            continue
        values = [ways[name][metric] for ways in table.values()]
        hollow = k == min(recording["ks"])
        axes.plot(
            places,
            values,
            color=style.color,
            marker=style.marker,
            linestyle=":" if hollow else "-",
            markerfacecolor=fill(style.color, int(hollow)),
            label=f"{style.label}, k = {k}" if k else style.label,
            markersize=6,
        )
    axes.set_xticks(places, list(table))
    axes.set(xlim=(-0.25, len(table) - 0.75), ylim=(0, None))
    axes.grid(visible=False, axis="x")


def _ways(recording: Mapping) -> Iterator[tuple[str, Style, int]]:
    """Recorded name, look and k of every way of decoding, plain first."""
    yield next(iter(next(iter(recording["batches"].values())))), METHODS["none"], 0
    for label, config in recording["methods"].items():
        for k in recording["ks"]:
            yield f"{label}, k = {k}", look(label, config), k


def _speedups(ways: Mapping[str, dict]) -> list[float]:
    """The speed-ups of all ways that draft."""
    return [way["speedup"] for way in list(ways.values())[1:]]


def _finding(data: Mapping[str, dict]) -> str:
    """What the course's machine shows."""
    first, *_, last = next(iter(data.values()))["batches"].values()
    if max(_speedups(last)) < max(_speedups(first)):
        return "The more requests at once, the less a draft is worth"
    return "Drafts for several requests at once"


def _same_height(column: list[Axes]) -> None:
    top = max(axes.get_ylim()[1] for axes in column)
    for axes in column:
        axes.set_ylim(0, 1.08 * top)
