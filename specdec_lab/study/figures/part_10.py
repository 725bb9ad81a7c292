"""Figures of notebook 10: stages that know the guesses before them, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.learning_live import label_ends, learning_live
from specdec_lab.study.figures.measured.learning import learning, training
from specdec_lab.study.figures.measured.looks import lighter
from specdec_lab.study.figures.speed_bars import speed_figure
from specdec_lab.study.figures.style import METHODS, new_figure

INK, PALE = "#222222", "#e6bfdd"
COLOR = METHODS["mlp_speculator"].color
MARKS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def pairs(data: dict) -> Figure:
    """Laws of two tokens side by side: the target's, that of heads that do not know each other's
    guesses, and that of stages that do.

    ``data``: ``first`` and ``second`` (words), ``laws`` (name -> rows of chances) and ``accepted``
    (name -> the chance that the second guess is accepted, None for the target).
    """
    figure = new_figure(8.6, 3.3)
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.1, top=0.68, wspace=0.3)
    for axes, (name, law) in zip(figure.subplots(1, 3), data["laws"].items(), strict=True):
        axes.imshow(law, cmap="Purples", vmin=0, vmax=0.9)
        for row, chances in enumerate(law):
            for column, chance in enumerate(chances):
                axes.text(column, row, f"{chance:.2f}", ha="center", va="center", color=INK)
        axes.set_xticks(range(len(data["second"])), data["second"])
        axes.set_yticks(range(len(data["first"])), data["first"])
        axes.grid(visible=False)
        chance = data["accepted"][name]
        below = "" if chance is None else f"\n2nd accepted: {chance:.2f}"
        axes.set_title(name + below, fontsize=10.5, loc="left")
    _head(figure, "Heads that do not know the first word draft pairs that do not exist")
    return figure


def knowing(data: dict) -> Figure:
    """Overlap by depth of two drafts trained alike: stages that read the tokens drafted before
    them, and stages that read the pending token alone.

    ``data``: ``curves`` (name -> overlap by depth) and ``tokens``, learned from.
    """
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    for (name, alphas), color in zip(data["curves"].items(), (COLOR, "#6b6b6b"), strict=True):
        places = range(1, len(alphas) + 1)
        axes.plot(places, alphas, marker="o", color=color)
        axes.annotate(
            name, (places[-1], alphas[-1]), xytext=(0, 9), textcoords="offset points",
            ha="right", color=color, weight="bold", fontsize=10,
        )  # fmt: skip
    most = max(max(alphas) for alphas in data["curves"].values())
    axes.set(xlabel="drafted token", ylabel="overlap (held out)", ylim=(0, 1.3 * most))
    axes.set_xticks(range(1, len(alphas) + 1))
    seeing, blind = (curve[1] for curve in data["curves"].values())
    axes.set_title(f"The second guess: {seeing:.2f} informed, {blind:.2f} blind")
    return figure


def by_depth(data: dict) -> Figure:
    """Alpha of every drafted token by kind of text.

    ``data``: ``domains``, each with ``domain``, ``alpha`` by depth (None: never judged), ``tau``;
    of another drafter, its ``method`` too.
    """
    figure = new_figure(7.6, 3.6)
    figure.subplots_adjust(right=0.7)
    axes, color = figure.subplots(), _color(data)
    deepest = 1
    for domain, mark, dash in zip(data["domains"], MARKS, DASHES, strict=False):
        known = [(i + 1, a) for i, a in enumerate(domain["alpha"]) if a is not None]
        label = f"{domain['domain']} (tau {domain['tau']:.2f})"
        axes.plot(*zip(*known, strict=True), marker=mark, linestyle=dash, color=color, label=label)
        deepest = max(deepest, len(known))
    axes.set(xlabel="drafted token", ylabel="alpha", ylim=(0, 1.02))
    axes.set_xticks(range(1, deepest + 1))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3.2)
    taus = [d["tau"] for d in data["domains"]]
    axes.set_title(f"Acceptance by depth: tau from {min(taus):.2f} to {max(taus):.2f}")
    return figure


def vocabulary(data: dict) -> Figure:
    """The cap that a draft vocabulary puts on greedy acceptance, by its size and kind of text.

    ``data``: ``sizes`` and ``curves`` (kind -> share of the target's favourites that it holds),
    ``shipped``, the size of the shipped draft.
    """
    figure = new_figure(7, 3.6)
    figure.subplots_adjust(right=0.76)
    axes = figure.subplots()
    for (_, shares), mark, dash in zip(data["curves"].items(), MARKS, DASHES, strict=False):
        axes.plot(data["sizes"], shares, marker=mark, linestyle=dash, color=COLOR)
    axes.axvline(data["shipped"], color=INK, linestyle=":", linewidth=1.4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(data["sizes"], [f"{size:,}" for size in data["sizes"]])
    lowest = min(min(shares) for shares in data["curves"].values())
    axes.set(xlabel="tokens that can be drafted (dotted: ours)", ylabel="most that alpha can be")
    axes.set_ylim(max(0, lowest - 0.1), 1.03)
    _label_curves(axes, data["curves"])
    axes.set_title("A draft vocabulary puts a cap on acceptance")
    return figure


def _label_curves(axes: Axes, curves: dict[str, Sequence[float]]) -> None:
    """The kinds at the right edge, moved apart."""
    low, high = axes.get_ylim()
    gap, lowest = 0.07 * (high - low), -1.0
    for share, name in sorted((shares[-1], name) for name, shares in curves.items()):
        lowest = max(share, lowest + gap)
        place = {"xycoords": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
        axes.annotate(f" {name} {share:.2f}", (1, lowest), annotation_clip=False, **place)


def temperature(data: dict) -> Figure:
    """Chance that the first drafted token is accepted, by temperature, for both ways to draft.

    ``data``: ``temperatures``, and ``greedy`` and ``sampled`` (mean chances at each of them);
    of another drafter, its ``method`` too.
    """
    figure = new_figure(6.6, 3.6)
    figure.subplots_adjust(right=0.76)
    axes, color = figure.subplots(), _color(data)
    for name, dash, mark in (("sampled", "-", "P"), ("greedy", "--", "o")):
        axes.plot(data["temperatures"], data[name], dash, marker=mark, color=color)
    label_ends(axes, [(data[name][-1], name) for name in ("sampled", "greedy")])
    axes.set(xlabel="temperature", ylabel="chance of acceptance", ylim=(0, 1.02))
    low, high = (data["sampled"][i] - data["greedy"][i] for i in (0, -1))
    axes.set_title(f"Sampled less greedy: cold {low:+.2f}, warm {high:+.2f}")
    return figure


def speed(data: dict) -> Figure:
    """Speed-up by domain, a bar for each k; ``data``: see `speed_bars`; of another drafter, its
    ``method`` too.
    """
    number = len(data["domains"][0]["ways"])
    shades = [lighter(_color(data), 0.6 * (1 - n / number)) for n in range(1, number + 1)]
    return speed_figure(data, [{"color": shade} for shade in shades])


def _color(data: dict) -> str:
    """The colour of the drafter that ``data`` are of."""
    return METHODS[data.get("method", "mlp_speculator")].color


def _head(figure: Figure, words: str) -> None:
    figure.suptitle(words, x=0.02, ha="left", weight="bold", fontsize=12)


FIGURES = {
    "10_pairs": pairs,
    "10_live": learning_live,
    "10_knowing": knowing,
    "10_by_depth": by_depth,
    "10_vocabulary": vocabulary,
    "10_temperature": temperature,
    "10_speed": speed,
    "10_training": training,
    "10_learning": learning,
}
