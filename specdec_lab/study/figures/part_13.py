"""Figures of notebook 13: what a feature leaves open, pairs of features and tokens, drift, the tree
of EAGLE-2 and its calibration, the mask of training-time test, shipped weights, chains and trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from specdec_lab.study.figures.learning_live import label_ends
from specdec_lab.study.figures.measured.looks import lighter
from specdec_lab.study.figures.part_12 import expand
from specdec_lab.study.figures.speed_bars import name_ways, speed_bars
from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure

INK, GREY = "#222222", "#666666"
FULL = METHODS["eagle"].color
PALE = lighter(FULL, 0.55)
DARK = "#8f3f00"  # the vermilion of EAGLE, dark enough to read
TRUE, OWN = TOKEN_COLORS["bonus"], TOKEN_COLORS["recovered"]
LOOKS = {  # colour, marker and dash of what is compared
    "eagle_1": (PALE, "o", "-"),
    "eagle_3": (FULL, "*", "-"),
    "one step": (GREY, "o", "--"),
    "unrolled": (PALE, "s", "-"),
    "EAGLE-3": (FULL, "*", "-"),
}
NAMES = {"eagle_1": "EAGLE-1", "eagle_3": "EAGLE-3"}
WAYS = ((PALE, ""), (PALE, "///"), (FULL, ""), (FULL, "///"))  # EAGLE 1, 2, 3; trees are hatched


def uncertainty(data: dict) -> Figure:
    """Two futures of one feature (left), and how open the next feature is at real places.

    ``data``: ``root`` (a word), ``branches``, each with ``word``, ``chance`` and ``after`` (pairs
    of a next word and its chance), and ``places``, each with ``word`` and ``open`` (a share of
    the variance of features).
    """
    figure = new_figure(8.8, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    figure.subplots_adjust(left=0.01, right=0.97, bottom=0.14, top=0.82, wspace=0.26)
    _futures(left, data["root"], data["branches"])
    places = sorted(data["places"], key=lambda place: -place["open"])
    right.barh(range(len(places)), [place["open"] for place in places], 0.66, color=FULL)
    for y, place in enumerate(places):
        right.text(place["open"] + 0.01, y, f"{place['open']:.2f}", va="center", fontsize=8.5)
    right.set_yticks(range(len(places)), [place["word"] for place in places], fontsize=9)
    right.invert_yaxis()
    right.grid(visible=False, axis="y")
    right.set(xlim=(0, 1.2 * max(place["open"] for place in places)))
    right.set_xlabel("variance left open (1: that of all features)")
    right.set_title("behind real tokens", fontsize=11, weight="normal")
    mean = sum(place["open"] for place in places) / len(places)
    _headline(figure, f"Before the token is drawn, {mean:.0%} of the variance of features is open")
    return figure


def _futures(axes: Axes, root: str, branches: Sequence[Mapping]) -> None:
    """A word, two tokens that may follow, and what the target would say behind either."""
    axes.set(xlim=(0, 10), ylim=(0, 10))
    axes.axis("off")
    _box(axes, 1.1, 5, f"f({root})", TRUE)
    heights = (7.9, 2.1)
    for y, branch in zip(heights, branches, strict=True):
        _arrow(axes, (1.9, 5), (3.3, y))
        up = 0.7 if y > 5 else -0.7
        axes.text(2.0, (5 + y) / 2 + up, f"{branch['chance']:.2f}", fontsize=9.5)
        _box(axes, 4.6, y, f"f({root} {branch['word']})", TRUE)
        for shift, (word, chance) in zip((1.1, 0, -1.1), branch["after"], strict=False):
            axes.text(7.0, y + shift, f"{word}  {chance:.2f}", va="center", fontsize=9.5)
        _arrow(axes, (6.1, y), (6.9, y))
    _box(axes, 4.6, 5, "their mean", OWN)
    axes.text(6.2, 5, "neither of them", va="center", fontsize=9.5, color=DARK)
    axes.set_title("one feature, two futures", fontsize=11, weight="normal", x=0.04)


def pairs(data: dict) -> Figure:
    """What EAGLE reads and what it says: a column a pair, true ones first, then its own.

    ``data``: ``columns``, each with ``feature``, ``token``, ``guess``, ``truth`` (words) and
    ``own`` (the feature is one that the head made).
    """
    columns = data["columns"]
    figure = new_figure(8.8, 3.5)
    figure.subplots_adjust(left=0.12, right=0.99, bottom=0.02, top=0.88)
    axes = figure.subplots()
    axes.set(xlim=(-0.55, len(columns) - 0.45), ylim=(4.55, -0.5))
    axes.axis("off")
    for y, name in ((0, "feature of"), (1, "next token"), (2.6, "guess"), (3.6, "the target")):
        axes.text(-0.62, y, name, ha="right", va="center", fontsize=9.5, color=GREY)
    for x, column in enumerate(columns):
        _box(axes, x, 0, column["feature"], OWN if column["own"] else TRUE)
        _box(axes, x, 1, column["token"], "white")
        _arrow(axes, (x, 1.4), (x, 2.2))
        right = column["guess"] == column["truth"]
        _box(axes, x, 2.6, column["guess"], TOKEN_COLORS["accepted"] if right else "white")
        axes.text(x, 3.6, column["truth"], ha="center", va="center", fontsize=9)
    true = sum(not column["own"] for column in columns) - 0.5
    axes.axvline(true, 0.02, 0.98, color=GREY, linestyle=":", linewidth=1.4)
    axes.text(true - 0.08, 4.35, "the target has been here", ha="right", fontsize=9, color=GREY)
    axes.text(true + 0.08, 4.35, "the head's own features", fontsize=9, color=DARK)
    hits = sum(column["guess"] == column["truth"] for column in columns)
    _headline(
        figure, f"Pairs of a feature and the token behind it: {hits} of {len(columns)} guessed"
    )
    return figure


def drift(data: dict) -> Figure:
    """Error of the predicted feature (left) and right guesses (right) by drafted token.

    ``data``: ``lines``: a name of `LOOKS` -> ``error`` (None for a head that predicts no feature)
    and ``right``, the share of right guesses, by depth.
    """
    figure, lines = new_figure(8.6, 3.7), data["lines"]
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.87, bottom=0.15, top=0.84, wspace=0.58)
    for axes, what in ((left, "error"), (right, "right")):
        ends = []
        for name, line in lines.items():
            if line[what]:
                _line(axes, name, range(1, len(line[what]) + 1), line[what])
                ends.append((line[what][-1], NAMES.get(name, name)))
        depth = max(len(line["right"]) for line in lines.values())
        axes.set(xlabel="drafted token", xticks=range(1, depth + 1), ylim=(0, None))
        label_ends(axes, ends, 0.075 * axes.get_ylim()[1])
    left.set_ylabel("error of the feature (1: the mean)")
    right.set_ylabel("share of right guesses")
    told = (f"{NAMES.get(name, name)} {line['right'][-1]:.2f}" for name, line in lines.items())
    _headline(figure, f"Right guesses of token {depth}: {', '.join(told)}")
    return figure


def calibration(data: dict) -> Figure:
    """Share accepted against the draft's own probability, for the first and for later tokens.

    ``data``: ``panels``, each with ``title`` and ``lines``: a name of `LOOKS` -> points with
    ``confidence``, ``accepted`` and ``num``.
    """
    figure = new_figure(8.4, 4.2)
    grid = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.14, top=0.82, wspace=0.08)
    for axes, panel in zip(grid, data["panels"], strict=True):
        axes.plot((0, 1), (0, 1), "--", color="black", linewidth=1.4)
        for name, points in panel["lines"].items():
            sure, taken = ([point[key] for point in points] for key in ("confidence", "accepted"))
            _line(axes, name, sure, taken, label=NAMES.get(name, name))
            for point in points:
                spot = point["confidence"], point["accepted"]
                how = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
                axes.annotate(str(point["num"]), spot, fontsize=8, color=GREY, **how)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.1), xlabel="the draft's probability of its token")
        axes.set_title(panel["title"], fontsize=11, weight="normal")
    grid[0].set_ylabel("share accepted")
    grid[0].legend(loc="upper left", fontsize=9.5)
    _headline(figure, "Is a draft as often right as it says? (dashed: exactly; numbers: places)")
    return figure


def mask(data: dict) -> Figure:
    """Who sees whom when a head is unrolled over a text: a row a query, a column a key.

    ``data``: ``steps`` and ``places`` (numbers of them), and ``seen`` (rows x columns, 0 or 1),
    both step by step.
    """
    steps, places = data["steps"], data["places"]
    names = [f"{step} · {place}" for step in range(steps) for place in range(places)]
    figure = new_figure(6.2, 6.1)
    figure.subplots_adjust(left=0.17, right=0.99, bottom=0.02, top=0.8)
    axes = figure.subplots()
    for y, row in enumerate(data["seen"]):
        for x, yes in enumerate(row):
            color = (TRUE if x < places else OWN) if yes else "#f4f4f4"
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white", lw=1.2))
    for edge in range(places, steps * places, places):
        axes.axhline(edge, color=GREY, linewidth=1.2)
        axes.axvline(edge, color=GREY, linewidth=1.2)
    axes.set(xlim=(0, len(names)), ylim=(len(names), 0), aspect="equal")
    axes.set_xticks([x + 0.5 for x in range(len(names))], names, rotation=90, fontsize=8.5)
    axes.set_yticks([y + 0.5 for y in range(len(names))], names, fontsize=8.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set(xlabel="step · place of the key", ylabel="step · place of the query")
    axes.yaxis.labelpad = 8
    axes.xaxis.set_label_position("top")
    _headline(figure, "True keys up to the place, then its own chain: the diagonals")
    return figure


def shipped(data: dict) -> Figure:
    """Alpha by depth (left) and the chance of the first drafted token by temperature (right).

    ``data``: ``alpha`` (name -> by depth), ``cap``, ``temperatures`` and ``chances``: name ->
    ``greedy`` and ``sampled``, each at every temperature.
    """
    figure = new_figure(8.8, 3.9)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.07, right=0.86, bottom=0.14, top=0.82, wspace=0.6)
    ends = [(data["cap"], "cap")]
    for name, alpha in data["alpha"].items():
        _line(left, name, range(1, len(alpha) + 1), alpha)
        ends.append((alpha[-1], NAMES[name]))
    depth = max(map(len, data["alpha"].values()))
    left.axhline(data["cap"], color="black", linestyle="--", linewidth=1.4)
    left.set(xlabel="drafted token", ylabel="alpha", xticks=range(1, depth + 1), ylim=(0, 1.02))
    label_ends(left, ends)
    ends = []
    for name, chances in data["chances"].items():
        for way, dash in (("sampled", "-"), ("greedy", ":")):
            color, marker, _ = LOOKS[name]
            right.plot(data["temperatures"], chances[way], dash, color=color, marker=marker)
            ends.append((chances[way][-1], f"{NAMES[name][-1]}, {way}"))
    right.set(xlabel="temperature", ylabel="chance", ylim=(0, None))
    label_ends(right, ends, 0.075 * right.get_ylim()[1])
    left.set_title("greedy, by depth", fontsize=11, weight="normal")
    right.set_title("first token, over the temperature", fontsize=11, weight="normal")
    told = (f"{NAMES[name]} {alpha[0]:.2f}" for name, alpha in data["alpha"].items())
    _headline(figure, f"Alpha of the first drafted token: {', '.join(told)}; cap {data['cap']:.2f}")
    return figure


def chains_and_trees(data: dict) -> Figure:
    """Tokens a forward (left) and speed-up (right) of the four ``WAYS`` in turn, by domain.

    ``data``: see `speed_bars`.
    """
    looks = [{"facecolor": c, "hatch": h, "edgecolor": "white", "linewidth": 0} for c, h in WAYS]
    domains = data["domains"]
    height = 0.95 * len(domains) + 1.9
    figure = new_figure(9.4, height)
    left, right = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=1.2 / height, top=1 - 0.55 / height)
    for y, domain in enumerate(domains):
        for number, (look, found) in enumerate(zip(looks, domain["ways"].values(), strict=True)):
            at = y + 0.21 * (number - 1.5)
            left.barh(at, found["tau"], 0.19, **look)
            left.text(found["tau"] + 0.02, at, f"{found['tau']:.2f}", va="center", fontsize=8.5)
    left.axvline(1, color=METHODS["none"].color, linewidth=1.6)
    left.set(xlabel="tokens a forward (tau)", xlim=(0, 1.15 * left.get_xlim()[1]))
    speed_bars(right, data, looks)
    left.grid(visible=False, axis="y")
    name_ways(figure, data, looks)
    best = max((f["tau"], w, d["domain"]) for d in domains for w, f in d["ways"].items())
    _headline(figure, f"Most tokens a forward: {best[1]} on {best[2]}, {best[0]:.2f}")
    return figure


def _line(axes: Axes, name: str, x: Sequence[float], y: Sequence[float], **how: object) -> None:
    color, marker, dash = LOOKS[name]
    axes.plot(x, y, dash, color=color, marker=marker, **how)


def _box(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    look = {"boxstyle": "round,pad=0.3", "facecolor": color, "edgecolor": "#777777"}
    axes.text(x, y, text, ha="center", va="center", fontsize=9.5, color=INK, bbox=look)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "mutation_scale": 11, "color": GREY, "linewidth": 1.3}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **look))


def _headline(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.02, y=0.97, ha="left", weight="bold", fontsize=12)


FIGURES = {
    "13_uncertainty": uncertainty,
    "13_pairs": pairs,
    "13_drift": drift,
    "13_tree": expand,
    "13_calibration": calibration,
    "13_mask": mask,
    "13_shipped": shipped,
    "13_chains_and_trees": chains_and_trees,
}
