"""Figures of notebook 08: bits of the twin, greedy against sampled drafts, a trained draft."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.learning_live import label_ends, learning_live
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
    """Speed over plain decoding by domain, and the tokens per forward that bought it.

    ``data``: ``k`` and ``domains``, each with ``domain``, ``speedup`` and ``tau``.
    """
    domains = data["domains"]
    figure = new_figure(6.6, 0.5 * len(domains) + 1.5)
    figure.subplots_adjust(left=0.17, right=0.95)
    axes = figure.subplots()
    lines = range(len(domains))
    speedups = [d["speedup"] for d in domains]
    axes.barh(lines, speedups, 0.6, color=METHODS["draft_model"].color)
    for y, domain in enumerate(domains):
        text = f"{domain['speedup']:.2f} x   (tau {domain['tau']:.2f})"
        axes.text(domain["speedup"] + 0.03, y, text, va="center", fontsize=10)
    axes.axvline(1, color=INK, linestyle="--", linewidth=1.6)
    axes.set(xlim=(0, 1.45 * max(*speedups, 1)), xlabel="speed over plain decoding (dashed: 1)")
    _name_lines(axes, [d["domain"] for d in domains])
    low, high = min(speedups), max(speedups)
    axes.set_title(f"The 4-bit twin, k = {data['k']}: {low:.2f} to {high:.2f} times as fast")
    return figure


def trained(data: dict) -> Figure:
    """The twin and a trained draft: acceptance by depth (left, a line a domain), speed-up (right).

    ``data``: for both, by name, ``taken`` (entries with ``domain``, ``alpha`` by depth, ``tau``),
    ``speedups`` (domain -> speed-up) and ``k``, the drafted tokens of the latter.
    """
    figure = new_figure(9, 3.7)
    figure.subplots_adjust(left=0.07, right=0.98, wspace=0.62, top=0.82)
    left, right = figure.subplots(1, 2, width_ratios=(3, 3))
    ends = []
    for (name, domains), color in zip(data["taken"].items(), (TWIN, BLUE), strict=True):
        for domain, dash in zip(domains, ("-", "--", ":"), strict=False):
            known = [(i + 1, a) for i, a in enumerate(domain["alpha"]) if a is not None]
            left.plot(*zip(*known, strict=True), color=color, linestyle=dash, marker="^")
            ends.append((known[-1][1], f"{name}, {domain['domain']}"))
    label_ends(left, ends)
    left.set(xlabel="drafted token", ylabel="alpha", ylim=(0, 1.02))
    left.set_xticks(range(1, 1 + max(len(d["alpha"]) for t in data["taken"].values() for d in t)))
    _rival_bars(right, data)
    reached = [f"{name} {max(found.values()):.2f}" for name, found in data["speedups"].items()]
    figure.suptitle(
        f"Speed-up at best: {' x, '.join(reached)} x", x=0.02, ha="left", weight="bold", fontsize=12
    )
    return figure


def _rival_bars(axes: Axes, data: dict) -> None:
    """Speed-up by domain, a bar for each draft."""
    names = list(next(iter(data["speedups"].values())))
    for number, (name, color) in enumerate(zip(data["speedups"], (TWIN, BLUE), strict=True)):
        values = [data["speedups"][name][domain] for domain in names]
        lines = [y + 0.38 * (number - 0.5) for y in range(len(names))]
        axes.barh(lines, values, 0.36, color=color)
        for y, value in zip(lines, values, strict=True):
            text = f"{name}, k = {data['k'][name]}: {value:.2f}"
            axes.text(0.03, y, text, va="center", fontsize=8.5, color="white")
    axes.axvline(1, color=INK, linestyle="--", linewidth=1.6)
    axes.set(xlabel="speed-up (dashed: plain)")
    _name_lines(axes, names)


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
