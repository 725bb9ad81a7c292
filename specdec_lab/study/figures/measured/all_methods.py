"""All methods beside each other, from `measure decode`: what a step brings, what it costs, and what
is left of it on the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from specdec_lab.study.figures.measured.looks import PALE, look
from specdec_lab.study.figures.measured.methods import NAMES, believed, contents, speedup_in_words
from specdec_lab.study.figures.style import METHODS, Style, new_figure

Recording = Mapping[str, object]
METRICS = (  # metric, in words, ticks
    ("tau", "tokens per forward", (1, 2, 4)),
    ("speedup", "speed-up with prompt", (0.7, 1, 1.4, 2)),
)
SPEEDS = (1.0, 1.25, 1.5, 2.0)  # lines of equal speed-up
PRICED = ("chat", "code", "json")


def all_methods(data: Mapping[str, Recording]) -> Figure:
    """A line for each method: tau (above) and speed-up with the prompt (below) by domain, at the k
    that is fastest there; intervals over prompts. The fullest mark of a column is its best. A
    speed-up that is refused is not drawn.

    ``data``: machine -> what `measure decode` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    labels, domains = greedy_labels(recording), recording["domains"]
    figure = new_figure(11.4, 1.5 + 0.52 * len(labels))
    height = figure.get_figheight()
    grid = figure.subplots(len(METRICS), len(domains), sharey=True, sharex="row", squeeze=False)
    figure.subplots_adjust(
        left=0.175, right=0.99, bottom=0.62 / height, top=1 - 0.72 / height, wspace=0.07, hspace=0.3
    )
    for row, (metric, words, ticks) in zip(grid, METRICS, strict=True):
        for axes, domain in zip(row, domains, strict=True):
            _forest(axes, recording, labels, domain, metric)
            axes.set_xlabel(words, fontsize=9.5)
        row[0].set_yticks(range(len(labels)), [_style(recording, one).label for one in labels])
        row[0].set_ylim(len(labels) - 0.4, -0.6)
        _logarithmic(row[0].xaxis, ticks)
        row[0].set_xlim(*_ends(recording, labels, metric))
    for axes, domain in zip(grid[0], domains, strict=True):
        axes.set_title(NAMES.get(domain, domain), fontsize=11)
    figure.suptitle(_finding(recording), x=0.012, ha="left", weight="bold", fontsize=12)
    return figure


def _finding(recording: Recording) -> str:
    """The fastest method of every domain, in a sentence."""
    winners = {d: max(_rows(recording, d), key=lambda row: row[2])[0] for d in recording["domains"]}
    by_label: dict[str, list[str]] = {}
    for domain, label in winners.items():
        by_label.setdefault(label, []).append(NAMES.get(domain, domain))
    said = [f"{_style(recording, one).label} on {_and(names)}" for one, names in by_label.items()]
    return f"Fastest: {'; '.join(said)}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def greedy_labels(recording: Recording) -> list[str]:
    """The methods that drafted greedily, in the order of the recording."""
    found = (c["label"] for c in recording["cells"].values() if c["k"] and not c["temperature"])
    return list(dict.fromkeys(found))


def _cells(recording: Recording, label: str) -> list[Mapping]:
    cells = recording["cells"].values()
    return [c for c in cells if c["label"] == label and c["k"] and not c["temperature"]]


def _style(recording: Recording, label: str) -> Style:
    return look(label, _cells(recording, label)[0]["config"])


def fastest(recording: Recording, label: str, scope: str) -> Mapping:
    """The cell of a method whose k is the fastest in a scope."""
    return max(_cells(recording, label), key=lambda cell: believed(cell["scopes"][scope]))


def _rows(recording: Recording, scope: str) -> list[tuple[str, int, float]]:
    """Label, fastest k and its speed-up of every method."""
    cells = {label: fastest(recording, label, scope) for label in greedy_labels(recording)}
    return [(one, cell["k"], believed(cell["scopes"][scope])) for one, cell in cells.items()]


def _forest(
    axes: Axes, recording: Recording, labels: Sequence[str], domain: str, metric: str
) -> None:
    """A point with its interval and k for every method; the best one is full."""
    cells = [fastest(recording, label, domain) for label in labels]
    scopes = [cell["scopes"][domain] for cell in cells]
    values = [believed(one) if metric == "speedup" else one[metric] for one in scopes]
    axes.axvline(1, color=METHODS["none"].color, lw=1.4, zorder=1)
    for y, (label, cell, value) in enumerate(zip(labels, cells, values, strict=True)):
        style = _style(recording, label)
        if not value:
            axes.text(1.03, y, "refused", va="center", fontsize=8, color=style.color)
            continue
        low, high = cell["scopes"][domain][f"{metric}_interval"] or [value, value]
        inside = style.color if value == max(values) else "white"
        axes.hlines(y, low, high, color=style.color, lw=2, zorder=2)
        axes.plot(value, y, style.marker, color=style.color, mfc=inside, zorder=3)
        axes.annotate(
            f"{value:.2f}" + (f"  k {cell['k']}" if metric == "speedup" else ""),
            (max(high, value), y),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color="#444444",
        )
    axes.grid(visible=False, axis="y")


def _logarithmic(axis: Axis, ticks: Sequence[float]) -> None:
    """An axis on which equal factors are equal steps, with plain numbers at ``ticks``."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def _ends(recording: Recording, labels: Sequence[str], metric: str) -> tuple[float, float]:
    """Where an axis begins and ends: around 1 and every interval, with room for the numbers."""
    found = [
        cell["scopes"][domain][f"{metric}_interval"] or [cell["scopes"][domain][metric]] * 2
        for label in labels
        for domain in recording["domains"]
        for cell in [fastest(recording, label, domain)]
    ]
    low, high = min(0.95, *(pair[0] for pair in found)), max(1.3, *(pair[1] for pair in found))
    return 0.96 * low, high * (high / low) ** 0.45


def describe_all_methods(data: Mapping[str, Recording]) -> str:
    """The picture in words: the best speed-up of every method by domain."""
    machine, recording = next(iter(data.items()))
    said = []
    for label in greedy_labels(recording):
        numbers = []
        for domain in recording["domains"]:
            cell = fastest(recording, label, domain)
            speedup = speedup_in_words(cell["scopes"][domain])
            numbers.append(f"{domain} {speedup} (k {cell['k']})")
        said.append(f"{_style(recording, label).label}: {', '.join(numbers)}")
    return (
        "Tokens per forward and speed-up with the prompt of all methods by domain, "
        f"{machine} ({contents(recording)}). {'; '.join(said)}."
    )


# --- the price of a step --------------------------------------------------------------------------


def price(data: Mapping[str, Recording]) -> Figure:
    """Tokens per forward against the price of a step in plain steps, all k of every method, in
    three domains; along a line the speed-up without the prompt is the same.

    ``data``: machine -> what `measure decode` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    domains = [d for d in PRICED if d in recording["domains"]] or recording["domains"][:3]
    figure = new_figure(11.4, 5)
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.25, top=0.85, wspace=0.1)
    row = figure.subplots(1, len(domains), sharex=True, sharey=True, squeeze=False)[0]
    points = {d: _priced(recording, d) for d in domains}
    for axes, domain in zip(row, domains, strict=True):
        for label, line in points[domain].items():
            style = _style(recording, label)
            axes.plot(*zip(*line, strict=True), **style.line(), lw=1.2, label=style.label)
        axes.set_title(NAMES.get(domain, domain), fontsize=11)
        axes.set_xlabel("price of a step, in plain steps")
    row[0].set_ylabel("tokens per forward (tau)")
    everything = np.array([p for d in points.values() for line in d.values() for p in line])
    left, (right, top) = 0.97 * everything[:, 0].min(), 1.06 * everything.max(0)
    for axes in row:
        _logarithmic(axes.xaxis, (1, 1.25, 1.5, 2, 2.5, 3))
        _logarithmic(axes.yaxis, (1, 1.5, 2, 3, 4, 5))
        axes.set(xlim=(min(left, 0.95), max(right, 1.3)), ylim=(0.93, max(top, 1.5)))
        _equal_speeds(axes)
    lines, names = row[0].get_legend_handles_labels()
    figure.legend(lines, names, ncols=6, loc="lower center", fontsize=9.5)
    title = "A draft pays where it lies above the line of 1"
    figure.suptitle(title, x=0.012, ha="left", weight="bold", fontsize=12)
    return figure


def _priced(recording: Recording, domain: str) -> dict[str, list[tuple[float, float]]]:
    """By method the price of a step and tau, for every k."""
    plain = _step(next(iter(recording["cells"].values())), domain)
    return {
        label: [
            (_step(cell, domain) / plain, cell["scopes"][domain]["tau"])
            for cell in sorted(_cells(recording, label), key=lambda cell: cell["k"])
        ]
        for label in greedy_labels(recording)
    }


def _step(cell: Mapping, domain: str) -> float:
    return sum(cell["scopes"][domain]["step_seconds"].values())


def _equal_speeds(axes: Axes) -> None:
    """Lines through the origin, each labelled where it leaves the chart."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    for speed in SPEEDS:
        is_plain = speed == 1
        look = {"color": METHODS["none"].color, "ls": "-"} if is_plain else {"color": "#bbbbbb"}
        axes.plot([0.1, 10], [0.1 * speed, 10 * speed], **{"ls": ":", "lw": 1.2} | look, zorder=1)
        at = min(right, top / speed)
        where = {"textcoords": "offset points", "ha": "right", "va": "top"}
        axes.annotate(f"{speed:g}x", (at, at * speed), (-5, -3), **where, fontsize=8.5, color=PALE)


def describe_price(data: Mapping[str, Recording]) -> str:
    """The picture in words: every method's cheapest step and its tau, on the first domain."""
    machine, recording = next(iter(data.items()))
    domain = next((d for d in PRICED if d in recording["domains"]), recording["domains"][0])
    said = [
        f"{_style(recording, label).label} {line[0][0]:.2f} plain steps for {line[0][1]:.2f} tokens"
        for label, line in _priced(recording, domain).items()
    ]
    return f"Price of a step against tokens per forward, {machine}, {domain}: {'; '.join(said)}."
