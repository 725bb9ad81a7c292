"""Figures of notebook 05: what copying gains by domain and language, and what k does to it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.style import METHODS, new_figure

ORANGE, INK, GREY = METHODS["ngram"].color, "#222222", "#666666"
LANGUAGES = {"en": "English", "tr": "Turkish"}
LINES = (("s", "-"), ("D", "--"), ("^", "-"), ("o", ":"), ("v", "-."), ("P", "--"))
SHADES = ("#7a4a00", "#a86400", "#de8f05", "#6b6b6b", "#999999", "#444444")


def by_domain(data: dict) -> Figure:
    """Bars of tokens per forward; what only outputs that loop add is drawn as an empty box.

    ``data``: ``k`` and ``groups``, each with ``domain``, ``language``, ``tau``, ``tau_no_loops``
    (None if all outputs loop), ``rep4``, ``num_loops`` and ``num_prompts``.
    """
    groups = sorted(data["groups"], key=_without_loops)
    figure = new_figure(8, 0.31 * len(groups) + 1.5)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.2, right=0.74)
    _bars(axes, groups)
    for line, group in enumerate(groups):
        _numbers(axes, line, group)
    names = [f"{g['domain'].replace('_', ' ')}, {LANGUAGES[g['language']]}" for g in groups]
    axes.set_yticks(range(len(groups)), names)
    axes.axvline(1, color=METHODS["none"].color, lw=2)
    right = max(2.0, max(g["tau"] for g in groups)) * 1.1
    axes.set(xlim=(0, right), ylim=(-0.6, len(groups) + 0.1), xlabel="tokens per forward (tau)")
    axes.text(1, len(groups) - 0.35, " plain", color=METHODS["none"].color, fontsize=9)
    head = {"transform": axes.get_yaxis_transform(), "fontsize": 10, "weight": "bold"}
    axes.text(1.03, len(groups) - 0.35, "rep4", **head)
    axes.text(1.19, len(groups) - 0.35, "loops", **head)
    axes.grid(visible=False, axis="y")
    axes.set_title(f"Copying pays where the answer copies (k = {data['k']})", x=-0.3)
    return figure


def describe_by_domain(data: dict) -> str:
    """The picture in words: k, and the best and the worst group without loops."""
    known = [g for g in data["groups"] if g["tau_no_loops"] is not None]
    best, worst = max(known, key=_without_loops), min(known, key=_without_loops)
    said = [
        f"{g['domain'].replace('_', ' ')} in {LANGUAGES[g['language']]} {g['tau_no_loops']:.2f}"
        for g in (best, worst)
    ]
    return (
        f"k = {data['k']}: tokens per forward without looping outputs: highest {said[0]}, "
        f"lowest {said[1]}; plain decoding has 1."
    )


def by_k(data: dict) -> Figure:
    """Left tokens per forward against k, right the rows for nothing per written token.

    ``data``: list ``k`` and ``lines``, each with ``label``, ``tau`` and ``nothing`` (lists).
    """
    figure = new_figure(9, 3.9)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.07, right=0.85, bottom=0.16, top=0.86, wspace=0.72)
    panels = (
        (left, "tau", "tokens per forward (tau)", "Gains level off with k"),
        (right, "nothing", "rows for nothing per token", "Waste keeps growing"),
    )
    for axes, key, ylabel, title in panels:
        for number, line in enumerate(data["lines"]):
            marker, dash = LINES[number % len(LINES)]
            look = {"color": SHADES[number % len(SHADES)], "marker": marker, "linestyle": dash}
            axes.plot(data["k"], line[key], **look, markersize=5)
        _names(axes, data, key)
        axes.set(xlabel="k, drafted tokens per step", ylabel=ylabel)
        axes.set_title(title, fontsize=12)
    left.axhline(1, color=METHODS["none"].color, lw=1.4)
    return figure


def _without_loops(group: dict) -> float:
    return 0.0 if group["tau_no_loops"] is None else group["tau_no_loops"]


def _bars(axes: Axes, groups: Sequence[dict]) -> None:
    solid = [_without_loops(group) for group in groups]
    hatch = ["//" if group["language"] == "tr" else "" for group in groups]
    lines = range(len(groups))
    axes.barh(lines, solid, 0.62, color=ORANGE, hatch=hatch, edgecolor="#8a5600", lw=0.8)
    looping = {line: group["tau"] for line, group in enumerate(groups) if group["num_loops"]}
    axes.barh(
        list(looping), list(looping.values()), 0.62, color="none", edgecolor=GREY, ls=":", lw=1.4
    )


def _numbers(axes: Axes, line: int, group: dict) -> None:
    if solid := _without_loops(group):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
        axes.text(solid - 0.06, line, f"{solid:.2f}", ha="right", va="center", fontsize=9, bbox=box)
    looping = f"{group['num_loops']} of {group['num_prompts']}" if group["num_loops"] else "–"
    place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 10}
    color = "#b03a00" if group["num_loops"] else INK
    axes.text(1.03, line, f"{group['rep4']:.2f}", color=color, **place)
    axes.text(1.19, line, looping, color=color, **place)


def _names(axes: Axes, data: dict, key: str) -> None:
    """The lines' names at their ends, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    gap, y = (high - low) * 0.062, float("-inf")
    order = sorted(enumerate(data["lines"]), key=lambda pair: pair[1][key][-1])
    for number, line in order:
        y = max(line[key][-1], y + gap)
        color = SHADES[number % len(SHADES)]
        axes.annotate(
            line["label"],
            (data["k"][-1], line[key][-1]),
            xytext=(data["k"][-1] * 1.06, y),
            color=color,
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


FIGURES = {"05_by_domain": by_domain, "05_by_k": by_k}
