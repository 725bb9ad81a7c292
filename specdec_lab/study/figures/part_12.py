"""Figures of notebook 12: a tree and its mask, broken tree rules, EAGLE-2's tree, chains against
trees, token against block verification, and what the nodes cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure
from specdec_lab.study.figures.tree_layout import tree_layout

INK, GREY, PALE = "#222222", "#666666", "#e8e8e8"
CHAIN, TREE, BEST = METHODS["draft_model"].color, METHODS["eagle"].color, INK
BLOCK = METHODS["mtp"].color
ROUNDING = 1e-12  # the bound of the exactness test
DRAFTS = {"good": "good draft (4 bits)", "poor": "poor draft (3 bits)"}
SCHEMES = {  # what `explore` shows: label, colour and dash
    "greedy chain": ("fixed: chain of favourites", CHAIN, "--"),
    "greedy tree": ("fixed: EAGLE-2's tree", TREE, "--"),
    "drawn chain": ("drawn: chain, by token", CHAIN, "-"),
    "drawn chain, block": ("drawn: chain, by block", BLOCK, "-"),
    "drawn tree": ("drawn: tree", TREE, "-"),
}


def tree(data: dict) -> Figure:
    """A draft as a tree (left) and which entry sees which (right).

    ``data``: ``words`` (the pending token first), ``parents`` of the drafted ones, ``accepted``
    (drafted nodes), ``first_position`` (of the pending token) and ``seen``, the mask.
    """
    words, parents = data["words"], data["parents"]
    figure = new_figure(8.6, 0.55 * len(words) + 0.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    figure.subplots_adjust(left=0.02, right=0.99, bottom=0.05, top=0.84, wspace=0.3)
    nodes = [
        {"word": word, "note": f"{i + 1}", "filled": i in data["accepted"]}
        for i, word in enumerate(words[1:])
    ]
    _draw_tree(left, f"{words[0]}", "0", parents, nodes)
    for level in range(max(tree_layout(parents)[0]) + 2):
        words_below = f"position {data['first_position'] + level}"
        left.text(level, left.get_ylim()[0], words_below, ha="center", fontsize=9, color=GREY)
    left.set_title("One forward: words, numbers and positions", fontsize=11)
    _mask(right, words, data["seen"])
    return figure


def broken_trees(data: dict) -> Figure:
    """Bars on a log axis: total variation between the law of each tree rule and the target's.

    ``data["rules"]``: ``name``, ``total_variation`` and ``right``.
    """
    rows = sorted(data["rules"], key=lambda row: row["total_variation"])
    figure = new_figure(7.8, 0.42 * len(rows) + 1.3)
    figure.subplots_adjust(left=0.36, right=0.97)
    axes = figure.subplots()
    for y, row in enumerate(rows):
        apart, text = row["total_variation"], f"{row['total_variation']:.2g}"
        if row["right"]:
            apart, text = 3 * ROUNDING, "0: right"
        else:
            axes.barh(y, apart, 0.62, color=TREE)
        shift = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(text, (apart, y), color=BLOCK if row["right"] else INK, **shift)
    axes.axvline(ROUNDING, color="black", linestyle="--", linewidth=1.4)
    axes.text(ROUNDING / 1.6, 0, "bound of our test", fontsize=9, va="center", ha="right")
    axes.set(xscale="log", xlim=(1e-17, 30), ylim=(-0.7, len(rows) - 0.4))
    axes.set_yticks(range(len(rows)), [row["name"].replace("_", " ") for row in rows])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("total variation from the target's law (log axis)")
    wrong = sum(not row["right"] for row in rows)
    axes.set_title(f"{wrong} ways to judge siblings wrongly, each caught", x=-0.55)
    return figure


def expand(data: dict) -> Figure:
    """All nodes that EAGLE-2 scores at one place; those that are drafted are filled.

    ``data``: ``root`` and ``nodes``, parents first: ``word``, ``parent``, ``score``, ``rank`` (in
    the draft, from 1; 0: not drafted).
    """
    nodes = data["nodes"]
    parents = [node["parent"] for node in nodes]
    leaves = tree_layout(parents)[2]
    figure = new_figure(8.6, 0.36 * leaves + 0.8)
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.02, top=1 - 0.45 / (0.36 * leaves + 0.8))
    axes = figure.subplots()
    shown = [
        {
            "word": node["word"],
            "note": f"{node['score']:.2f}" + (f", no. {node['rank']}" if node["rank"] else ""),
            "filled": node["rank"] > 0,
        }
        for node in nodes
    ]
    _draw_tree(axes, data["root"], "", parents, shown, beside=True)
    kept = sum(node["rank"] > 0 for node in nodes)
    axes.set_title(f"Expand: {len(nodes)} nodes scored. Rerank: the best {kept} are drafted")
    return figure


def equal_nodes(data: dict) -> Figure:
    """Expected tokens a step against the number of drafted nodes: chain, tree, best tree.

    ``data``: ``nodes`` and ``panels``: ``draft``, ``temperature``, and ``chain``, ``tree``,
    ``best`` (tokens a step for each number of nodes).
    """
    figure = new_figure(8.6, 5.6)
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    figure.subplots_adjust(left=0.08, right=0.86, bottom=0.1, top=0.88, hspace=0.28, wspace=0.1)
    looks = (("best", BEST, ":", ""), ("tree", TREE, "-", "s"), ("chain", CHAIN, "-", "^"))
    for axes, panel in zip(grid.flat, data["panels"], strict=True):
        for name, color, dash, marker in looks:
            axes.plot(data["nodes"], panel[name], dash, marker=marker, color=color, markersize=5)
        axes.set_title(f"{DRAFTS[panel['draft']]}, T = {panel['temperature']:g}", fontsize=11)
        axes.set_xscale("log", base=2)
        axes.set_xticks(data["nodes"], [str(n) for n in data["nodes"]])
        axes.minorticks_off()
    names = {"best": "best fixed tree", "tree": "EAGLE-2's tree", "chain": "chain"}
    for row in (0, 1):
        ends = [(data["panels"][2 * row + 1][n][-1], names[n], c) for n, c, *_ in looks]
        _name_ends(grid[row, 1], data["nodes"][-1], ends)
        grid[row, 0].set(ylabel="tokens a step", ylim=(0.9, None))
    for axes in grid[1]:
        axes.set_xlabel("drafted nodes, all verified in one forward")
    figure.suptitle(
        "At equal nodes: the longer chain, or the wider tree?", x=0.08, ha="left", weight="bold"
    )
    return figure


def explore(data: dict) -> Figure:
    """Five ways to spend four draft passes: bars at one temperature, lines over all of them.

    ``data``: ``draft``, ``temperature``, ``nodes``, ``temperatures`` and ``tokens``: scheme ->
    expected tokens a step at each temperature.
    """
    at = data["temperatures"].index(data["temperature"])
    figure = new_figure(8.8, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1), sharex=False)
    figure.subplots_adjust(left=0.25, right=0.98, bottom=0.15, top=0.84, wspace=0.2)
    for y, (name, (_, color, dash)) in enumerate(SCHEMES.items()):
        values = data["tokens"][name]
        fill = {"color": color} if dash == "-" else {"color": "white", "edgecolor": color}
        left.barh(y, values[at], 0.62, lw=1.8, **fill)
        left.text(values[at] + 0.06, y, f"{values[at]:.2f}", va="center", fontsize=9.5)
        right.plot(data["temperatures"], values, dash, color=color)
        right.plot(data["temperature"], values[at], "o", color=color, markersize=6)
    left.set_yticks(range(len(SCHEMES)), [label for label, *_ in SCHEMES.values()])
    left.invert_yaxis()
    left.grid(visible=False, axis="y")
    left.axvline(1, color=METHODS["none"].color, lw=1.4)
    left.set(xlim=(0, 5.6), xlabel="expected tokens a step (grey: plain)")
    right.axvline(data["temperature"], color="#999999", lw=1, zorder=0)
    right.set(xlabel="temperature (dashed: fixed drafts)", ylim=(0.9, 5.1))
    left.set_title(f"T = {data['temperature']:g}, trees of {data['nodes']} nodes", fontsize=11)
    right.set_title("over the temperature", fontsize=11)
    figure.suptitle(
        f"Four draft passes, {DRAFTS[data['draft']]}", x=0.02, y=0.98, ha="left", weight="bold"
    )
    return figure


def describe_explore(data: dict) -> str:
    """The picture of `explore` in words."""
    at = data["temperatures"].index(data["temperature"])
    told = "; ".join(f"{SCHEMES[name][0]} {data['tokens'][name][at]:.2f}" for name in SCHEMES)
    return (
        f"draft = {data['draft']}, temperature = {data['temperature']:g}, "
        f"nodes = {data['nodes']}: tokens a step: {told}."
    )


def block(data: dict) -> Figure:
    """How much more block verification accepts than token verification, by the drafted length.

    ``data``: ``ks``, and ``drafts``: name -> ``token`` and ``block``, accepted tokens for each k.
    """
    figure = new_figure(8.4, 3.7)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.92, bottom=0.15, top=0.86, wspace=0.38)
    ends: tuple[list, list] = ([], [])
    for (name, kept), marker in zip(data["drafts"].items(), ("o", "s"), strict=False):
        left.plot(data["ks"], kept["token"], "--", marker=marker, color=CHAIN, markersize=5)
        left.plot(data["ks"], kept["block"], "-", marker=marker, color=BLOCK, markersize=5)
        gains = [100 * (b / t - 1) for t, b in zip(kept["token"], kept["block"], strict=True)]
        right.plot(data["ks"], gains, "-", marker=marker, color=BLOCK, markersize=5)
        ends[0].append((kept["block"][-1], name, INK))
        ends[1].append((gains[-1], name, INK))
    for axes, found in zip((left, right), ends, strict=True):
        _name_ends(axes, data["ks"][-1], found)
        axes.set(xlabel="k, drafted tokens", xticks=data["ks"], ylim=(0, None))
    left.set(ylabel="accepted tokens a step")
    right.set(ylabel="more accepted, per cent")
    left.set_title("Green: by block. Blue: by token", fontsize=11)
    right.set_title("The gain grows with the block", fontsize=11)
    return figure


def price(data: dict) -> Figure:
    """Cost of rows (left), and the speed-up that a tree and a chain leave (right).

    ``data``: ``curves`` (``label``, ``cost``: rows -> cost, one row = 1; where known its lowest and
    highest, ``cost_rounds``), ``nodes``, ``draft_cost`` (of a pass, in plain steps) and ``lines``:
    ``label``, ``kind`` (tree or chain), ``free`` (rows cost nothing) and ``speedup`` by number of
    nodes.
    """
    figure = new_figure(8.8, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    figure.subplots_adjust(left=0.085, right=0.8, bottom=0.14, top=0.87, wspace=0.3)
    marks = zip(
        data["curves"], ("o", "s", "^", "D"), (INK, "#0173b2", "#cc78bc", GREY), strict=False
    )
    for curve, marker, color in marks:
        points = sorted((int(rows), cost) for rows, cost in curve["cost"].items())
        rows, cost = zip(*points, strict=True)
        left.plot(rows, cost, marker=marker, color=color, label=curve["label"], markersize=5)
        for at, ends in curve.get("cost_rounds", {}).items():
            left.vlines(int(at), *ends, color=color, linewidth=1.4)
    left.axhline(1, color="#999999", lw=1.4, ls="--")
    left.set(xlabel="rows of one forward", ylabel="cost (one row = 1)", ylim=(0, None))
    left.set_xticks((1, 5, 9, 17, 33))
    left.legend(loc="upper left", fontsize=9)
    left.set_title("What nodes cost on a CPU", fontsize=11)
    ends = []
    for line in data["lines"]:
        color, dash = TREE if line["kind"] == "tree" else CHAIN, "--" if line["free"] else "-"
        right.plot(data["nodes"], line["speedup"], dash, color=color, marker="o", markersize=5)
        ends.append((line["speedup"][-1], line["label"], color))
    _name_ends(right, data["nodes"][-1], ends)
    right.axhline(1, color=METHODS["none"].color, lw=1.4, zorder=1)
    right.set_xscale("log", base=2)
    right.set_xticks(data["nodes"], [str(n) for n in data["nodes"]])
    right.minorticks_off()
    right.set(xlabel="drafted nodes", ylabel="speed-up (plain = 1)", ylim=(0, None))
    right.set_title(f"and what is left, at {data['draft_cost']:g} a draft pass", fontsize=11)
    return figure


def _draw_tree(
    axes: Axes,
    root: str,
    root_note: str,
    parents: Sequence[int],
    nodes: Sequence[Mapping],
    *,
    beside: bool = False,
) -> None:
    """Boxes from left to right, their notes below or ``beside`` them; filled ones are coloured."""
    depth, height, leaves = tree_layout(parents)
    top = [height[i] for i, parent in enumerate(parents) if parent < 0]
    middle = sum(top) / len(top)
    axes.set(xlim=(-0.6, max(depth) + 1.7), ylim=(leaves - 0.3, -0.5))
    axes.axis("off")
    for i, node in enumerate(nodes):
        above = parents[i]
        start = (0.0, middle) if above < 0 else (depth[above] + 1.0, height[above])
        color, width = (TREE, 2.6) if node["filled"] else ("#b9b9b9", 1.2)
        axes.plot([start[0], depth[i] + 1], [start[1], height[i]], color=color, lw=width, zorder=1)
    places = [(0.0, middle), *((depth[i] + 1.0, height[i]) for i in range(len(nodes)))]
    boxes = [{"word": root, "note": root_note, "filled": False}, *nodes]
    for (x, y), box in zip(places, boxes, strict=True):
        face = TOKEN_COLORS["accepted"] if box["filled"] else "white"
        look = {"boxstyle": "round,pad=0.3", "facecolor": face, "edgecolor": "#555555"}
        word = {"ha": "center", "va": "center", "fontsize": 10, "color": INK, "zorder": 3}
        text = f"{box['word']}  {box['note']}" if beside else box["word"]
        axes.text(x, y, text.strip(), bbox=look, **word)
        if not beside:
            axes.text(x, y + 0.33, box["note"], ha="center", va="center", fontsize=8.5, color=GREY)


def _mask(axes: Axes, words: Sequence[str], seen: Sequence[Sequence[bool]]) -> None:
    """The ancestor mask: a row for each entry, a filled square for each that it sees."""
    for row, sees in enumerate(seen):
        for column, yes in enumerate(sees):
            look = {"facecolor": CHAIN if yes else PALE, "edgecolor": "white", "lw": 1.5}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))
    axes.set(xlim=(-0.5, len(words) - 0.5), ylim=(len(words) - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(len(words)), [str(i) for i in range(len(words))])
    axes.set_yticks(range(len(words)), [f"{word}  {i}" for i, word in enumerate(words)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title("Which entry (row) sees which", fontsize=11, pad=18)


def _name_ends(axes: Axes, last: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the lines' ends, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    reached = float("-inf")
    for y, label, color in sorted(ends):
        reached = max(y, reached + 0.075 * (high - low))
        look = {"color": color, "fontsize": 9.5, "weight": "bold", "va": "center"}
        place = {"xytext": (8, 0), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(label, (last, reached), **place, **look)


FIGURES = {
    "12_tree": tree,
    "12_broken_trees": broken_trees,
    "12_expand": expand,
    "12_equal_nodes": equal_nodes,
    "12_explore": explore,
    "12_block": block,
    "12_price": price,
}
