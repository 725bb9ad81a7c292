"""Figures of notebook 06: the tree of continuations, how far a draft goes, repeated requests."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure
from specdec_lab.study.figures.tree_layout import tree_layout

INK, GREY, BLUE = (
    "#222222",
    "#666666",
    "#1f6f9f",
)  # the last: the sky of suffix, dark enough to read
PAIR = ("ngram", "suffix")
NAMES = {"ngram": "n-gram", "suffix": "suffix"}
INKS = {"ngram": "#8a5600", "suffix": BLUE, "none": GREY}


def tree(data: dict) -> Figure:
    """The tree of continuations: a node a box, its chance below, the path that is drafted filled.

    ``data``: ``root`` (the matched words) and ``nodes``, parents first, each with ``word``,
    ``parent`` (-1: the root), ``chance``, ``count`` and ``drafted``.
    """
    nodes = data["nodes"]
    depth, height, leaves = tree_layout([node["parent"] for node in nodes])
    columns = max(depth) + 2
    figure = new_figure(1.5 * columns + 0.6, 0.72 * leaves + 1.0)
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.03, top=1 - 0.5 / figure.get_figheight())
    axes = figure.subplots()
    axes.set(xlim=(-0.75, columns - 0.35), ylim=(leaves - 0.4, -0.6))
    axes.axis("off")
    middle = _mean([height[i] for i, node in enumerate(nodes) if node["parent"] < 0])
    for i, node in enumerate(nodes):
        above = node["parent"]
        start = (0.0, middle) if above < 0 else (depth[above] + 1.0, height[above])
        width = 1 + 7 * node["chance"]
        color = BLUE if node["drafted"] else "#b9b9b9"
        ends = [start[0] + 0.1, depth[i] + 0.95], [start[1], height[i]]  # the boxes lie above
        axes.plot(*ends, color=color, lw=width, solid_capstyle="butt", zorder=1)
    _node(axes, 0.0, middle, data["root"], "#eeeeee", "")
    for i, node in enumerate(nodes):
        color = TOKEN_COLORS["bonus"] if node["drafted"] else "#ffffff"
        below = f"{node['count']} × : {node['chance']:.2f}"
        _node(axes, depth[i] + 1.0, height[i], node["word"], color, below)
    axes.set_title("What followed: counts, and the chance of the whole path")
    return figure


def depth(data: dict) -> Figure:
    """Drafted tokens of every step, the accepted ones filled, for n-gram above and suffix below.

    ``data``: ``k``, ``forwards`` (of plain decoding), and for ``ngram`` and ``suffix`` a list of
    ``[drafted, accepted]`` by step.
    """
    figure = new_figure(8, 3.9)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.14, top=0.86, hspace=0.32)
    for axes, method in zip(panels, PAIR, strict=True):
        steps = data[method]
        for number, (drafted, accepted) in enumerate(steps, start=1):
            _step(axes, number, drafted, accepted, METHODS[method].color)
        drafted, accepted = (sum(step[i] for step in steps) for i in (0, 1))
        told = f"{NAMES[method]}: {len(steps)} forwards, {drafted} drafted, {accepted} accepted"
        axes.set_title(told, fontsize=11, color=INKS[method])
        axes.set(ylim=(0, data["k"] + 0.5), ylabel="tokens")
        axes.grid(visible=False, axis="x")
    longest = max(len(data[method]) for method in PAIR)
    panels[1].set(xlim=(0.2, longest + 0.8), xlabel="step (one target forward each)")
    figure.suptitle("Suffix decoding drafts as far as it is sure", x=0.08, ha="left", weight="bold")
    return figure


def requests(data: dict) -> Figure:
    """Tokens per forward of a series of requests, with and without what earlier ones said.

    ``data``: ``requests`` (short names) and ``series``, each with ``method`` (``ngram``,
    ``suffix``), ``label``, ``shared`` (whether it remembers) and ``tau`` by request.
    """
    figure = new_figure(8, 3.8)
    figure.subplots_adjust(left=0.09, right=0.72, bottom=0.2, top=0.88)
    axes = figure.subplots()
    places = range(1, len(data["requests"]) + 1)
    ends = []
    for series in data["series"]:
        line = METHODS[series["method"]].line()
        if series["method"] == "suffix" and not series["shared"]:
            line |= {"linestyle": "--"}
        axes.plot(places, series["tau"], **line)
        ends.append((series["tau"][-1], series["label"], INKS[series["method"]]))
    axes.axhline(1, **METHODS["none"].line() | {"marker": ""})
    ends.append((1.0, "plain decoding", GREY))
    _end_labels(axes, len(places), ends)
    axes.set_xticks(places, data["requests"])
    top = max(tau for series in data["series"] for tau in series["tau"])
    axes.set(xlim=(0.8, len(places) + 0.2), ylim=(0.8, top * 1.08))
    axes.set_ylabel("tokens per forward (tau)")
    axes.set_xlabel("requests, one after the other")
    axes.set_title("The second answer copies from the first")
    return figure


def against_ngram(data: dict) -> Figure:
    """Left forwards, right drafted tokens (filled: accepted), by domain, n-gram beside suffix.

    ``data``: ``domains``: name -> ``tokens`` and for ``ngram`` and ``suffix`` a dict of
    ``forwards``, ``drafted``, ``accepted``; and ``k``.
    """
    domains = data["domains"]
    figure = new_figure(8.4, 3.7)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.13, top=0.86, wspace=0.22)
    for side, method in zip((-0.2, 0.2), PAIR, strict=True):
        color = METHODS[method].color
        places = [place + side for place in range(len(domains))]
        shares, drafted, accepted = (
            [counts[method][what] / counts["tokens"] for counts in domains.values()]
            for what in ("forwards", "drafted", "accepted")
        )
        left.bar(places, shares, 0.36, color=color)
        right.bar(places, drafted, 0.36, color="white", edgecolor=color, lw=1.6, hatch="//")
        right.bar(places, accepted, 0.36, color=color)
        for place, share, total in zip(places, shares, drafted, strict=True):
            left.text(place, share - 0.06, f"{share:.2f}", ha="center", fontsize=9)
            right.text(place, total + 0.03, f"{total:.2f}", ha="center", fontsize=9)
    for axes in (left, right):
        axes.set_xticks(range(len(domains)), [name.replace("_", " ") for name in domains])
        axes.grid(visible=False, axis="x")
    left.axhline(1, color=METHODS["none"].color, lw=1.6)
    left.set(ylim=(0, 1.15), ylabel="target forwards per token")
    tallest = max(c[m]["drafted"] / c["tokens"] for c in domains.values() for m in PAIR)
    right.set(ylim=(0, max(tallest, 0.1) * 1.3), ylabel="drafted per token (filled: accepted)")
    left.set_title(f"Suffix: {_change(domains, 'forwards')} forwards", fontsize=11)
    right.set_title(f"and {_change(domains, 'drafted')} drafted tokens", fontsize=11)
    for x, method in ((0.5, "ngram"), (0.72, "suffix")):
        word = {"transform": right.transAxes, "fontsize": 11, "weight": "bold"}
        right.text(x, 0.92, NAMES[method], color=INKS[method], **word)
    return figure


def _change(domains: dict, what: str) -> str:
    """By how many per cent suffix differs from n-gram, all domains together, as +4 %."""
    ngram, suffix = (sum(counts[method][what] for counts in domains.values()) for method in PAIR)
    return f"{100 * suffix / ngram - 100:+.0f} %" if ngram else "no"


def describe_against_ngram(data: dict) -> str:
    """The picture in words, with every number."""
    told = []
    for name, counts in data["domains"].items():
        pair = [
            f"{NAMES[m]} {counts[m]['forwards']} forwards, {counts[m]['drafted']} drafted"
            for m in PAIR
        ]
        told.append(f"{name} ({counts['tokens']} tokens): {'; '.join(pair)}")
    return f"k = {data['k']}. " + ". ".join(told) + "."


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _node(axes: Axes, x: float, y: float, text: str, color: str, below: str) -> None:
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=11,
        color=INK,
        bbox={"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "#555555"},
        zorder=3,
    )
    axes.text(x, y + 0.4, below, ha="center", va="center", fontsize=9, color=GREY, zorder=3)


def _step(axes: Axes, number: int, drafted: int, accepted: int, color: str) -> None:
    """One step: a column of drafted tokens, the accepted ones filled; a dot where none was."""
    for token in range(drafted):
        face = color if token < accepted else "white"
        axes.add_patch(
            Rectangle((number - 0.35, token), 0.7, 0.92, facecolor=face, edgecolor=color, lw=1.1)
        )
    if not drafted:
        axes.plot(number, 0.25, ".", color=METHODS["none"].color, markersize=4)


def _end_labels(axes: Axes, last: int, ends: list[tuple[float, str, str]]) -> None:
    """Names at the lines' ends, pushed apart where they would touch."""
    span = max(y for y, _, _ in ends) - 0.8
    reached = float("-inf")
    for y, label, color in sorted(ends):
        reached = max(y, reached + 0.085 * span)
        axes.annotate(
            label,
            (last, y),
            xytext=(last + 0.28, reached),
            color=color,
            fontsize=10,
            weight="bold",
            va="center",
            annotation_clip=False,
        )


FIGURES = {
    "06_tree": tree,
    "06_depth": depth,
    "06_requests": requests,
    "06_against_ngram": against_ngram,
}
