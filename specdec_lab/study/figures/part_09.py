"""Figures of notebook 09: cost of a draft, who sees whom, dropped masks, acceptance, speed."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specdec_lab.study.figures.learning_live import learning_live
from specdec_lab.study.figures.speed_bars import speed_figure
from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure

INK, BROWN, BLUE = "#222222", "#8a5a2b", "#0173b2"  # the brown of PARD, dark enough to read
INKS = {"pard": BROWN, "draft_model": BLUE, "none": "#6b6b6b"}
NAMES = {"pard": "PARD", "draft_model": "one by one", "none": "a plain step"}
PAIR = ("draft_model", "pard")
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # behind words on a line
SEEN = {"token": TOKEN_COLORS["bonus"], "mask": "#e3bf9b"}


def cost(data: dict) -> Figure:
    """Milliseconds of one draft over its length, for both ways to draft, and of a plain step.

    ``data``: ``k`` (lengths), ``draft_model`` and ``pard`` (at each ``median``, ``low`` and
    ``high`` of the rounds, in milliseconds) and ``plain`` (the same).
    """
    figure = new_figure(7, 3.9)
    figure.subplots_adjust(left=0.11, right=0.8)
    axes, lengths, plain = figure.subplots(), data["k"], data["plain"]
    for method in PAIR:
        middle = [spread["median"] for spread in data[method]]
        ends = [[spread[end] for spread in data[method]] for end in ("low", "high")]
        axes.plot(lengths, middle, **METHODS[method].line())
        axes.vlines(lengths, *ends, color=INKS[method], linewidth=1.6)
        _at_end(axes, lengths[-1], middle[-1], NAMES[method], INKS[method])
    axes.axhline(plain["median"], color=METHODS["none"].color, linestyle=":", linewidth=2)
    axes.axhspan(plain["low"], plain["high"], color=METHODS["none"].color, alpha=0.15, linewidth=0)
    beside = {"xytext": (0, 6), "textcoords": "offset points"}
    axes.annotate(NAMES["none"], (lengths[0], plain["median"]), color=INKS["none"], **beside)
    top = 1.15 * max(s["high"] for s in (plain, *data["draft_model"], *data["pard"]))
    axes.set(xlabel="k, tokens in the draft", ylabel="milliseconds of one draft", ylim=(0, top))
    axes.set_xticks(lengths)
    grown = [data[method][-1]["median"] / data[method][0]["median"] for method in PAIR]
    axes.set_title(
        f"k = {lengths[0]} to {lengths[-1]}: one by one {grown[0]:.1f} times the time, "
        f"in one forward {grown[1]:.1f}"
    )
    return figure


def who_sees_whom(data: dict) -> Figure:
    """Two attention patterns, a row for every node that is read, a column for what it may see.

    ``data``: ``panels``, each with ``title``, ``rows`` and ``columns`` (names), ``kinds`` of the
    columns (``token`` or ``mask``) and ``visible`` (rows x columns, 0 or 1).
    """
    panels = data["panels"]
    heights = [len(panel["rows"]) for panel in panels]
    widths = [len(panel["columns"]) for panel in panels]
    figure = new_figure(0.33 * sum(widths) + 3.2, 0.3 * max(heights) + 1.7)
    figure.subplots_adjust(left=0.1, right=0.98, wspace=0.35, top=0.74, bottom=0.03)
    with rc_context({"axes.titley": None}):  # titles above the names of the columns
        both = figure.subplots(1, 2, width_ratios=widths)
        for axes, panel in zip(both, panels, strict=True):
            _pattern(axes, panel, max(heights))
    _headline(figure, "A mask sees the text up to its anchor, and its own chain")
    return figure


def _pattern(axes: Axes, panel: dict, height: int) -> None:
    for y, row in enumerate(panel["visible"]):
        for x, (seen, kind) in enumerate(zip(row, panel["kinds"], strict=True)):
            color = SEEN[kind] if seen else "#ffffff"
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="#bbbbbb", lw=0.6))
    axes.set(xlim=(0, len(panel["columns"])), ylim=(height, 0), aspect="equal")
    axes.set_xticks([x + 0.5 for x in range(len(panel["columns"]))], panel["columns"], rotation=90)
    axes.set_yticks([y + 0.5 for y in range(len(panel["rows"]))], panel["rows"])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8.5)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(panel["title"], fontsize=10.5, weight="normal", pad=8)


def dropped(data: dict) -> Figure:
    """Which masks of which chains are kept in one step of training, and the share by depth.

    ``data``: ``kept`` (chains x masks, 0 or 1).
    """
    kept = data["kept"]
    depth = len(kept[0])
    figure = new_figure(8.4, 0.34 * depth + 1.5)
    figure.subplots_adjust(left=0.09, right=0.97, wspace=0.12, top=0.84, bottom=0.22)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    for x, chain in enumerate(kept):
        for y, mask in enumerate(chain):
            color = METHODS["pard"].color if mask else "#f1f1f1"
            left.add_patch(Rectangle((x, y + 0.55), 0.9, 0.9, facecolor=color, lw=0))
    left.set(xlim=(0, len(kept)), ylim=(depth + 0.6, 0.4), xlabel="chain, behind each token")
    left.set_ylabel("mask")
    left.set_yticks(range(1, depth + 1))
    shares = [sum(chain[y] for chain in kept) / len(kept) for y in range(depth)]
    right.barh(range(1, depth + 1), shares, 0.7, color=METHODS["pard"].color)
    for y, share in enumerate(shares, start=1):
        right.text(share + 0.03, y, f"{share:.2f}", va="center", fontsize=9.5)
    right.set(xlim=(0, 1.15), xlabel="share kept")
    for axes in (left, right):
        axes.grid(visible=False)
    _headline(
        figure, f"{sum(shares):.2f} masks a token instead of {depth}, and every chain is whole"
    )
    return figure


def learning(data: dict) -> Figure:
    """A draft model learns to read masks; ``data`` as for `learning_live`."""
    figure = learning_live(data)
    first, last = (data["curve"][i]["alpha"] for i in (0, -1))
    real, masked = (f"{first[d]:.2f} → {last[d]:.2f}" for d in (0, 1))
    _headline(figure, f"alpha behind a token {real}, behind its first mask {masked}")
    return figure


def by_depth(data: dict) -> Figure:
    """alpha of each drafted token, given that those before it were taken, for both ways to draft.

    ``data``: ``draft_model`` and ``pard`` (alpha by depth, None where too little was left to
    judge), ``pard_anywhere`` (how often the token is right at all places), ``num_trained`` (drafted
    tokens that PARD was trained for).
    """
    anywhere = data["pard_anywhere"]
    depth = len(anywhere)
    figure = new_figure(7, 3.9)
    figure.subplots_adjust(left=0.11, right=0.8)
    axes = figure.subplots()
    for method in PAIR:
        points = [(d, alpha) for d, alpha in enumerate(data[method], 1) if alpha is not None]
        axes.plot(*zip(*points, strict=True), **METHODS[method].line())
        above = 8 if method == "draft_model" else -8  # where both end alike
        _at_end(axes, *points[-1], NAMES[method], INKS[method], above)
    axes.plot(range(1, depth + 1), anywhere, color=METHODS["pard"].color, linestyle=":")
    _at_end(axes, depth, anywhere[-1], "PARD, all places", INKS["pard"])
    if data["num_trained"] < depth:
        axes.axvspan(data["num_trained"] + 0.5, depth + 0.3, color="#f1f1f1", lw=0)
        axes.text(data["num_trained"] + 0.6, 0.93, "not trained", fontsize=9, color=INK)
    axes.set(xlabel="drafted token", ylabel="alpha", ylim=(0, 1), xlim=(0.7, depth + 0.3))
    axes.set_xticks(range(1, depth + 1))
    first, second = anywhere[:2]
    axes.set_title(
        f"Right at {first:.2f} of all places behind a token, at {second:.2f} behind a mask"
    )
    return figure


def greedy_or_sampled(data: dict) -> Figure:
    """Chance of each drafted token at temperature 1, greedy and sampled, for both ways to draft.

    ``data``: ``draft_model`` and ``pard``, each with ``greedy`` and ``sampled`` (means by depth).
    One by one, the first token stands for all.
    """
    figure = new_figure(8, 3.6)
    figure.subplots_adjust(left=0.1, right=0.97, wspace=0.1, top=0.8, bottom=0.17)
    widths = [0.5 + len(data[method]["greedy"]) for method in PAIR]
    panels = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    for axes, method in zip(panels, PAIR, strict=True):
        color = METHODS[method].color
        for shift, name, alpha in ((-0.2, "greedy", 0.45), (0.2, "sampled", 1.0)):
            places = [d + 1 + shift for d in range(len(data[method][name]))]
            axes.bar(places, data[method][name], 0.38, color=color, alpha=alpha)
            for x, share in zip(places, data[method][name], strict=True):
                axes.text(x, share + 0.01, f"{share:.2f}", ha="center", fontsize=8)
        number = len(data[method]["greedy"])
        axes.set(xlabel="drafted token (pale: greedy)" if number > 1 else "any token")
        axes.set(xlim=(0.4, number + 0.6))
        axes.set_xticks(range(1, 1 + number), range(1, 1 + number) if number > 1 else [""])
        axes.set_title(NAMES[method], fontsize=11, weight="normal", color=INKS[method])
        axes.grid(visible=False, axis="x")
    most = max(max(data[m][how]) for m in PAIR for how in ("greedy", "sampled"))
    panels[0].set(ylabel="chance at T = 1", ylim=(0, max(1.2 * most, 0.4)))
    _headline(figure, "A sampled draft lives off sum min(p, q), a greedy one off p(x)")
    return figure


def speed(data: dict) -> Figure:
    """Speed-up by domain of both ways to draft, one by one first; ``data``: see `speed_bars`."""
    return speed_figure(data, [{"color": METHODS[method].color} for method in PAIR])


def _headline(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.02, ha="left", weight="bold", fontsize=12)


def _at_end(axes: Axes, x: float, y: float, text: str, color: str, above: float = 0) -> None:
    axes.annotate(
        text,
        (x, y),
        xytext=(9, above),
        textcoords="offset points",
        va="center",
        fontsize=10,
        color=color,
        weight="bold",
        annotation_clip=False,
    )


FIGURES = {
    "09_cost": cost,
    "09_who_sees_whom": who_sees_whom,
    "09_dropped": dropped,
    "09_learning": learning,
    "09_by_depth": by_depth,
    "09_greedy_or_sampled": greedy_or_sampled,
    "09_speed": speed,
}
