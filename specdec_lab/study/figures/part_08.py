"""Figures of notebook 08: bits of the twin, greedy against sampled drafts, a trained draft."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.learning_live import label_ends, learning_live
from specdec_lab.study.figures.speed_bars import (
    best_in_words,
    name_ways,
    speed_bars,
    speed_figure,
)
from specdec_lab.study.figures.style import METHODS, new_figure

INK = "#222222"
PALE = "#a3cfee"
BLUE = METHODS["draft_model"].color
TWIN = "#013a5c"  # a darker blue than that of other draft models


def bits(data: dict) -> Figure:
    """How often a rounded copy agrees with its original, and how many megabytes it reads.

    ``data``: ``copies``, each with ``label`` (bits of the layers / of the head), ``agreement``,
    ``overlap`` and ``megabytes``.
    """
    copies = data["copies"]
    figure = new_figure(8, 3.4)
    figure.subplots_adjust(left=0.12, right=0.97, wspace=0.32, top=0.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    lines = range(len(copies))
    left.barh([y - 0.19 for y in lines], [c["agreement"] for c in copies], 0.36, color=PALE)
    color = METHODS["draft_model"].color
    left.barh([y + 0.19 for y in lines], [c["overlap"] for c in copies], 0.36, color=color)
    for y, copy in enumerate(copies):
        for up, name in ((-0.19, "agreement"), (0.19, "overlap")):
            left.text(copy[name] + 0.01, y + up, f"{copy[name]:.2f}", va="center", fontsize=9)
    left.set(xlim=(0, 1.12), xlabel="light: same favourite; dark: $\\sum\\min(p,q)$ at T = 1")
    left.set_ylabel("bits: layers / head")
    _name_lines(left, [c["label"] for c in copies])
    right.barh(lines, [c["megabytes"] for c in copies], 0.6, color=METHODS["none"].color)
    for y, copy in enumerate(copies):
        right.text(copy["megabytes"] + 8, y, f"{copy['megabytes']:.0f}", va="center", fontsize=9)
    most = max(c["megabytes"] for c in copies)
    right.set(xlim=(0, 1.2 * most), xlabel="megabytes read per token")
    _name_lines(right, ["" for _ in copies])
    figure.suptitle(
        "Four bits in the layers and eight in the head keep nearly the whole law",
        x=0.02,
        ha="left",
        weight="bold",
        fontsize=12,
    )
    return figure


def greedy_or_sampled(data: dict) -> Figure:
    """Chance that the first drafted token is accepted, by temperature, for both ways to draft.

    ``data``: ``temperatures``, and ``greedy`` and ``sampled`` (mean chances at each of them).
    """
    figure = new_figure(6.6, 3.8)
    axes = figure.subplots()
    color = METHODS["draft_model"].color
    curves = {
        "sampled": ("-", "^", "sampled: $\\sum\\min(p,q)$", -20),
        "greedy": ("--", "o", "greedy: p at q's favourite", -22),
    }
    for name, (dash, marker, label, above) in curves.items():
        values = data[name]
        axes.plot(data["temperatures"], values, dash, marker=marker, color=color)
        axes.annotate(
            label,
            (data["temperatures"][-1], values[-1]),
            xytext=(-8, above),
            textcoords="offset points",
            ha="right",
            fontsize=10,
            color=color,
            weight="bold",
        )
    axes.set(xlabel="temperature", ylabel="chance of acceptance", ylim=(0, 1.05))
    axes.set_title("The warmer the law, the more a sampled draft is worth")
    return figure


def speed(data: dict) -> Figure:
    """Speed-up of the twin by domain with the prompt (left) and without, from the same runs.

    ``data``: see `speed_bars`, with one way.
    """
    return speed_figure(data, [{"color": BLUE}], ("speedup", "steps"))


def trained(data: dict) -> Figure:
    """The twin and a trained draft: acceptance by depth (left, a line a domain), speed-up (right).

    ``data``: ``taken``: name -> entries with ``domain``, ``alpha`` by depth and ``tau``; and for
    the two in turn what `speed_bars` takes.
    """
    figure = new_figure(9.8, 4.4)
    figure.subplots_adjust(left=0.07, right=0.98, wspace=0.62, top=0.86, bottom=0.27)
    left, right = figure.subplots(1, 2)
    ends = []
    for (name, domains), color in zip(data["taken"].items(), (TWIN, BLUE), strict=True):
        for domain, dash in zip(domains, ("-", "--", ":"), strict=False):
            known = [(i + 1, a) for i, a in enumerate(domain["alpha"]) if a is not None]
            left.plot(*zip(*known, strict=True), color=color, linestyle=dash, marker="^")
            ends.append((known[-1][1], f"{name}, {domain['domain']}"))
    label_ends(left, ends)
    left.set(xlabel="drafted token", ylabel="alpha", ylim=(0, 1.02))
    left.set_xticks(range(1, 1 + max(len(d["alpha"]) for t in data["taken"].values() for d in t)))
    looks = [{"color": TWIN}, {"color": BLUE}]
    speed_bars(right, data, looks)
    name_ways(figure, data, looks)
    figure.suptitle(best_in_words(data), x=0.02, ha="left", weight="bold", fontsize=12)
    return figure


def _name_lines(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


FIGURES = {
    "08_bits": bits,
    "08_greedy_or_sampled": greedy_or_sampled,
    "08_live": learning_live,
    "08_speed": speed,
    "08_trained": trained,
}
