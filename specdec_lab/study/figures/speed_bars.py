"""Bars of speed-ups by kind of text: medians, whiskers over the rounds, and what they contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from specdec_lab.study.figures.style import new_figure

Looks = Sequence[Mapping[str, object]]  # arguments of Axes.barh for each way in turn
INK = "#222222"
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # behind words on a line
CONTENT = {  # short, and in full
    "speedup": ("with the prompt", "speed-up of a request, its prompt included"),
    "steps": ("without the prompt", "speed-up without the prompt: tau / price of a step"),
}


def speed_figure(data: Mapping, looks: Looks, whats: Sequence[str] = ("steps",)) -> Figure:
    """A figure of `speed_bars` alone, a chart for each of ``whats``."""
    bars = sum(len(domain["ways"]) for domain in data["domains"])
    height = 0.24 * bars + 0.1 * len(data["domains"]) + 1.8
    figure = new_figure(7 if len(whats) == 1 else 9.4, height)
    figure.subplots_adjust(left=0.13, bottom=1.1 / height, right=0.98, wspace=0.08)
    charts = figure.subplots(1, len(whats), sharey=True, squeeze=False)[0]
    for axes, what in zip(charts, whats, strict=True):
        speed_bars(axes, data, looks, what)
    name_ways(figure, data, looks)
    title = best_in_words(data, whats[0])
    figure.suptitle(title, x=0.02, ha="left", weight="bold", fontsize=11)
    return figure


def speed_bars(axes: Axes, data: Mapping, looks: Looks, what: str = "steps") -> None:
    """A bar for each domain and way, beside it tau; where the clock was disturbed, the refusal.

    ``data`` is what `as_picture` makes of measured speeds; ``what`` is "steps", or "speedup" for
    whole requests.
    """
    domains = data["domains"]
    for y, domain in enumerate(domains):
        thick = 0.84 / len(domain["ways"])
        for number, (look, found) in enumerate(zip(looks, domain["ways"].values(), strict=True)):
            at = y + thick * (number - (len(domain["ways"]) - 1) / 2)
            _bar(axes, at, found, what, {"height": 0.9 * thick, **look})
    axes.axvline(1, color=INK, linestyle="--", linewidth=1.6, zorder=1)
    axes.set(xlim=(0, 1.5 * axes.get_xlim()[1]), ylim=(len(domains) - 0.5, -0.5))
    axes.set_yticks(range(len(domains)), [domain["domain"] for domain in domains])
    axes.grid(visible=False, axis="y")
    about = f"one answer of {data['tokens']} tokens; median and range of {data['rounds']} rounds"
    axes.set_xlabel(f"{CONTENT[what][1]}\n{about}", fontsize=9)


def name_ways(figure: Figure, data: Mapping, looks: Looks) -> None:
    """The legend below a figure, where there is more than one way."""
    ways = data["domains"][0]["ways"]
    if len(ways) > 1:
        handles = [Patch(label=way, **look) for way, look in zip(ways, looks, strict=True)]
        figure.legend(handles=handles, ncols=4, loc="lower center", fontsize=9)


def best_in_words(data: Mapping, what: str = "steps") -> str:
    """The fastest way of all with its range, and where; or that there is no result."""
    believed = [
        (found[what]["median"], found[what]["low"], found[what]["high"], way, domain["domain"])
        for domain in data["domains"]
        for way, found in domain["ways"].items()
        if not found["refused"]
    ]
    if not believed:
        return "No result: every speed-up lies above tau"
    middle, low, high, way, domain = max(believed)
    return f"At best {middle:.2f} x ({low:.2f}-{high:.2f}) {CONTENT[what][0]}: {way}, on {domain}"


def _bar(axes: Axes, at: float, found: Mapping, what: str, look: Mapping) -> None:
    how = {"va": "center", "fontsize": 8.5, "bbox": WHITE}
    if found["refused"]:
        axes.text(0.03, at, f"refused: above tau {found['tau']:.2f}", **how)
        return
    spread = found[what]
    axes.barh(at, spread["median"], **look)
    for color, width in (("white", 3.6), (INK, 1.6)):  # seen on dark bars as well
        axes.hlines(at, spread["low"], spread["high"], color=color, linewidth=width)
    text = f"{spread['median']:.2f} x  (tau {found['tau']:.2f})"
    axes.text(spread["high"] + 0.03, at, text, **how)
