"""Figures of notebook 04: two costs of drafting, the model's sliders, the price of verification,
one request on a time line, and one method in several domains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study import theory
from specdec_lab.study.figures.style import METHODS, new_figure

MOST_K = 16
SHADES = ("#081d58", "#225ea8", "#1d91c0", "#5ab4ac", "#9a9a9a")  # high acceptance is dark
MARKS = ("o", "s", "^", "D", "v")
ONCE, EACH = "#0173b2", "#d55e00"  # drafting paid once a step, or for each token
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.8}


def two_costs(data: dict) -> Figure:
    """Speed-up against k, drafting paid per step (left) and per token (right).

    ``data``: ``draft_cost``, ``acceptances``, ``marked_k``; all else is closed form.
    """
    figure = new_figure(8.4, 4.6)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.07, right=0.915, bottom=0.13, top=0.9, wspace=0.32)
    cost = data["draft_cost"]
    for axes, per in ((left, "step"), (right, "token")):
        curves = {a: _speeds(a, cost, per) for a in data["acceptances"]}
        for number, (acceptance, speeds) in enumerate(curves.items()):
            axes.plot(range(1, MOST_K + 1), speeds, color=SHADES[number])
            best = data["marked_k"] if per == "step" else theory.optimal_k(acceptance, cost)
            _mark(axes, number, best, speeds[best - 1], f"{speeds[best - 1]:.2f}")
        axes.set_ylim(0, 1.2 * max(map(max, curves.values())))
        _name_ends(axes, MOST_K, curves)
    for axes, words in ((left, "1 + c"), (right, "1 + k c")):
        _reference(axes)
        axes.set(xlabel="k, drafted tokens per step", xlim=(0.5, MOST_K + 0.2))
        axes.set_xticks((1, 4, 8, 12, 16))
        axes.text(
            0.03,
            0.97,
            f"a step costs {words}, c = {cost:g}",
            transform=axes.transAxes,
            va="top",
            bbox=BOX,
        )
    left.set_ylabel("speed-up (plain = 1)")
    left.set_title("Paid once a step: no k is too long", fontsize=11)
    right.set_title("Paid per token: every line has a top", fontsize=11)
    return figure


def explore(data: dict) -> Figure:
    """What a step writes (left) and the speed-up against k at both costs (right).

    ``data``: ``k``, ``acceptance``, ``draft_cost``.
    """
    k, acceptance, cost = data["k"], data["acceptance"], data["draft_cost"]
    figure = new_figure(8.4, 3.5)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    figure.subplots_adjust(left=0.075, right=0.96, bottom=0.17, top=0.86, wspace=0.26)
    _chances(left, acceptance, k)
    for per, color, words in (("step", ONCE, "1 + c"), ("token", EACH, "1 + k c")):
        speeds = _speeds(acceptance, cost, per)
        dash = "-" if per == "step" else "--"
        right.plot(range(1, MOST_K + 1), speeds, dash, color=color, label=f"a step costs {words}")
        right.plot(k, speeds[k - 1], "o", color=color, markersize=9)
    _reference(right)
    right.axvline(k, color="#999999", lw=1, zorder=0)
    top = max(_speeds(acceptance, cost, "step"))
    right.set(xlabel="k, drafted tokens per step", ylabel="speed-up (plain = 1)")
    right.set(xlim=(0.5, MOST_K + 0.5), ylim=(0, max(2.0, 1.4 * top)))
    right.set_xticks((1, 4, 8, 12, 16))
    right.legend(loc="upper left", fontsize=10)
    speed = theory.expected_speedup(acceptance, k, cost)
    right.set_title(f"and is {_times(speed)} at cost 1 + c", fontsize=11)
    return figure


def describe_explore(data: dict) -> str:
    """The picture of `explore` in words."""
    k, acceptance, cost = data["k"], data["acceptance"], data["draft_cost"]
    once, each = (theory.expected_speedup(acceptance, k, cost, per=p) for p in ("step", "token"))
    best = theory.optimal_k(acceptance, cost)
    where = "without end" if math.isinf(best) else f"at k = {best}"
    return (
        f"k = {k}, acceptance {acceptance:g}, draft cost {cost:g}: "
        f"{theory.expected_tokens(acceptance, k):.2f} tokens a step; {_times(once)} if the cost is "
        f"paid once a step, {_times(each)} if it is paid per token (best {where})."
    )


def verification(data: dict) -> Figure:
    """Measured cost of rows (left), and what it leaves of the speed-up (right).

    ``data``: ``curves`` (a list of ``label`` and ``cost``: rows -> cost, one row = 1), ``cost``
    (the one used on the right), ``draft_cost``, ``acceptances``.
    """
    figure = new_figure(8.4, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    figure.subplots_adjust(left=0.075, right=0.915, bottom=0.14, top=0.89, wspace=0.24)
    _rows(left, data["curves"])
    verify = theory.verification_cost(data["cost"])
    ks = range(min(MOST_K, max(map(int, data["cost"])) - 1) + 1)
    curves = {}
    for number, acceptance in enumerate(data["acceptances"]):
        free, paid = (
            [theory.expected_speedup(acceptance, k, data["draft_cost"], verify=v) for k in ks]
            for v in (None, verify)
        )
        right.plot(ks, free, ":", color=SHADES[number], lw=1.4)
        right.plot(ks, paid, "-", color=SHADES[number])
        best = max(ks, key=paid.__getitem__)
        _mark(right, number, best, paid[best], f"k = {best}")
        curves[acceptance] = paid
    right.set_ylim(0, 1.2 * max(map(max, curves.values())))
    _name_ends(right, ks[-1], curves)
    _reference(right)
    right.set(xlabel="k, drafted tokens per step", ylabel="speed-up (plain = 1)")
    right.set(xlim=(0, ks[-1] + 0.2), xticks=range(0, ks[-1] + 1, 4))
    right.set_title("so even drafts for nothing have a best k", fontsize=11)
    return figure


def request(data: dict) -> Figure:
    """One request on a time line: tokens as they arrive, and what every burst accepted.

    ``data``: ``runs``: a list of ``method``, ``at`` (seconds), ``tokens`` (of each burst),
    ``accepted``.
    """
    figure = new_figure(8.4, 4.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.4, 1))
    figure.subplots_adjust(left=0.085, right=0.97, bottom=0.12, top=0.91, hspace=0.12)
    for run in data["runs"]:
        style, total, points = METHODS[run["method"]], 0, []
        for number in run["tokens"]:
            total += number
            points.append(total)
        line = style.line() | {"markersize": 4, "drawstyle": "steps-post"}
        top.plot(run["at"], points, **line)
        top.annotate(
            style.label,
            (run["at"][-1], points[-1]),
            (0, 7),
            textcoords="offset points",
            ha="right" if run is data["runs"][0] else "center",
            va="bottom",
            color=style.color,
            weight="bold",
            bbox=BOX,
        )
        top.axvline(run["at"][0], color=style.color, lw=1, ls=":")
    first = data["runs"][0]["at"][0]
    top.text(first / 2, 0.55, "TTFT", transform=top.get_xaxis_transform(), ha="center", rotation=90)
    last = data["runs"][-1]
    color = METHODS[last["method"]].color
    bottom.vlines(last["at"], 0, last["accepted"], color=color, lw=2)
    bottom.plot(last["at"], last["accepted"], "o", color=color, markersize=5)
    bottom.set(xlabel="seconds since the request", ylabel="accepted", xlim=(0, None))
    bottom.set_ylim(-0.4, max(last["accepted"]) + 0.8)
    bottom.yaxis.get_major_locator().set_params(integer=True)
    top.set(ylabel="tokens so far", ylim=(0, 1.15 * points[-1]))
    top.set_title("The same text; it starts no sooner, and it comes in bursts")
    return figure


def by_domain(data: dict) -> Figure:
    """One method on one machine, by domain: promised by tokens, by the model, and by the clock.

    ``data``: ``domains``, and lists ``tau``, ``predicted``, ``measured`` (None: refused) of equal
    length; in newer recordings ``spread``, the lowest and highest round of ``measured``.
    """
    figure = new_figure(7.4, 3.7)
    axes = figure.subplots()
    looks = (
        ("tau", "#f6d9a8", "", "tokens per forward"),
        ("predicted", "white", "///", "model: tokens / measured cost of the rows"),
        ("measured", METHODS["ngram"].color, "", "clock"),
    )
    for shift, (name, color, hatch, label) in zip((-0.27, 0, 0.27), looks, strict=True):
        places = [place + shift for place in range(len(data["domains"]))]
        heights = [value or 0 for value in data[name]]
        axes.bar(places, heights, 0.25, color=color, hatch=hatch, edgecolor="#555", label=label)
        spreads = data.get("spread", []) if name == "measured" else []
        for place, (low, high), value in zip(places, spreads, data[name], strict=False):
            if value is not None:
                axes.plot([place, place], [low, high], color="#222222")
        tops = [high for _, high in spreads] or heights
        for place, top, value in zip(places, tops, data[name], strict=True):
            text = "refused" if value is None else f"{value:.2f}"
            axes.text(place, (top if value else 0) + 0.04, text, ha="center", fontsize=9)
    _reference(axes)
    axes.grid(visible=False, axis="x")
    axes.set_xticks(range(len(data["domains"])), data["domains"])
    highest = max(value or 0 for name, *_ in looks for value in data[name])
    axes.set(ylabel="times plain decoding", ylim=(0, 1.45 * highest))
    axes.legend(loc="upper left", fontsize=9.5)
    axes.set_title("One method, one machine: each kind of text has its own speed-up")
    return figure


def _speeds(acceptance: float, cost: float, per: str) -> list[float]:
    ks = range(1, MOST_K + 1)
    return [theory.expected_speedup(acceptance, k, cost, per=per) for k in ks]


def _mark(axes: Axes, number: int, k: int, speed: float, text: str) -> None:
    """The marker of a line at k, with a word above it; below it for the fourth line."""
    axes.plot(k, speed, MARKS[number], color=SHADES[number], markersize=6.5, zorder=4)
    shift, side = (-6, "top") if number == 3 else (5.5, "bottom")
    look = {"fontsize": 9, "ha": "center", "va": side, "bbox": BOX, "zorder": 3}
    axes.annotate(text, (k, speed), (0, shift), textcoords="offset points", **look)


def _name_ends(axes: Axes, last_k: int, curves: dict[float, list[float]]) -> None:
    """The acceptance rate at the end of every line, names pushed apart where lines are close."""
    low, high = axes.get_ylim()
    place = -math.inf
    for number, (acceptance, speeds) in reversed(list(enumerate(curves.items()))):
        place = max(speeds[-1], place + 0.055 * (high - low))
        name = f"a = {acceptance:g}"
        axes.text(last_k + 0.4, place, name, color=SHADES[number], va="center", fontsize=10)


def _times(speed: float) -> str:
    return f"{speed:.2f} times as fast"


def _reference(axes: Axes) -> None:
    axes.axhline(1, color=METHODS["none"].color, lw=1.4, zorder=1)


def _chances(axes: Axes, acceptance: float, k: int) -> None:
    """Bars: how probable it is that a step writes 1, 2, ..., k + 1 tokens."""
    alive = [1.0, *theory.survival(acceptance, k)]
    chances = [here - after for here, after in zip(alive, [*alive[1:], 0.0], strict=True)]
    colors = ["#f7bd95"] * k + ["#a3cfee"]
    axes.bar(range(1, k + 2), chances, color=colors, edgecolor="#555", lw=0.6)
    axes.grid(visible=False, axis="x")
    axes.set(xlabel="tokens that a step writes", ylabel="probability", ylim=(0, 1))
    axes.set_xticks(range(1, k + 2, 1 if k < 9 else 4))
    tokens = theory.expected_tokens(acceptance, k)
    axes.set_title(f"A step writes {tokens:.2f} tokens", fontsize=11)


def _rows(axes: Axes, curves: Sequence[dict]) -> None:
    """Measured cost against the number of rows, between "free" and "each row pays in full"."""
    most = 1
    for curve, mark, color in zip(curves, MARKS, ("#222222", "#0173b2", "#cc78bc"), strict=False):
        points = sorted((int(rows), cost) for rows, cost in curve["cost"].items())
        points = [point for point in points if point[0] <= MOST_K + 1]
        rows, cost = zip(*points, strict=True)
        most = max(most, *cost)
        axes.plot(rows, cost, marker=mark, color=color, label=curve["label"], markersize=6)
    axes.plot([1, 1 + MOST_K], [1, 1 + MOST_K], "--", color="#999999", lw=1.4)
    axes.axhline(1, color="#999999", lw=1.4, ls="--")
    axes.text(MOST_K + 1, 0.96, "free rows", ha="right", va="top", color="#666666", fontsize=9.5)
    top = 1.35 * most + 0.5
    axes.text(
        0.72 * top,
        0.8 * top,
        " each row in full",
        ha="left",
        va="top",
        color="#666666",
        fontsize=9.5,
    )
    axes.set(xlabel="rows of one forward, 1 + k", ylabel="cost (one row = 1)")
    axes.set(xlim=(0.5, MOST_K + 1.5), ylim=(0, top))
    axes.set_xticks((1, 5, 9, 13, 17))
    axes.legend(loc="lower right", fontsize=9.5)
    axes.set_title("Rows are cheap, but not free", fontsize=11)


FIGURES = {
    "04_two_costs": two_costs,
    "04_explore": explore,
    "04_verification": verification,
    "04_request": request,
    "04_by_domain": by_domain,
}
