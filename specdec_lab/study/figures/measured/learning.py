"""What drafts learn while they are trained, and what more data would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import PALE, look
from specdec_lab.study.figures.style import Style, new_figure
from specdec_lab.study.learning_curves import (
    MILESTONES,
    SHIPPED,
    Milestones,
    Outlook,
    milestones,
    outlook,
    read_curves,
    tau_of,
)

FURTHER = 10_000_000  # tokens that the outlook ends at
TOKENS = ((3e4, "30 k"), (1e5, "100 k"), (3e5, "300 k"), (1e6, "1 M"), (3e6, "3 M"), (1e7, "10 M"))


def learning_data() -> dict[str, list[dict]]:
    """What the figures are drawn from: the curves of the ``milestones``, and of the weights that
    are ``shipped``.
    """
    return {"milestones": read_curves(MILESTONES), "shipped": read_curves(SHIPPED)}


def learning(data: Mapping[str, Sequence[Mapping]]) -> Figure:
    """Held-out tau and first-token alpha over training tokens, with the outlook to ten million.

    ``data``: as `learning_data` gives it; of a method with one milestone only the point is drawn.
    """
    figure = new_figure(10, 4.2)
    figure.subplots_adjust(left=0.07, right=0.985, bottom=0.16, top=0.88, wspace=0.2)
    left, right = figure.subplots(1, 2)
    for found in milestones(data["milestones"]):
        style = method_style(found.method)
        _milestones(left, found, style, found.tau, found.tau_error)
        _milestones(right, found, style, found.alpha, found.alpha_error)
    left.set(ylabel="tau on held-out texts (plain = 1)")
    right.set(ylabel="alpha of the first drafted token")
    fewest = min((run["tokens"] for run in data["milestones"]), default=100_000)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(*zip(*TOKENS, strict=True))
        axes.minorticks_off()
        axes.set(xlabel="training tokens, written by the target", xlim=(0.7 * fewest, 1.3e7))
    handles, names = left.get_legend_handles_labels()
    left.legend(handles, names, loc="upper left", fontsize=9.5)
    left.set_title("Measured, and what more data may bring")
    note = "shaded: from no further gain to the steepest gain seen"
    right.set_title(note, fontsize=9.5, color=PALE, weight="normal")
    return figure


def _milestones(
    axes: Axes, found: Milestones, style: Style, values: list[float], errors: list[float]
) -> None:
    """Points with their errors (95 %), and the outlook behind the last one."""
    bars = [1.96 * error for error in errors]
    axes.errorbar(found.tokens, values, bars, **style.line(), label=style.label, zorder=3)
    ahead = outlook(found.tokens, values, errors[-1], FURTHER)
    if ahead is None:
        return
    last, half = found.tokens[-1], bars[-1]
    low, high = [values[-1] - half, ahead.low], [values[-1] + half, ahead.high]
    axes.fill_between([last, FURTHER], low, high, color=style.color, alpha=0.13, lw=0)
    axes.plot([last, FURTHER], [values[-1], ahead.middle], ":", color=style.color, lw=1.6)


def describe_learning(data: Mapping[str, Sequence[Mapping]]) -> str:
    """The picture in words: tau at every milestone, and the outlook."""
    said = []
    for found in milestones(data["milestones"]):
        points = zip(found.tokens, found.tau, strict=True)
        words = ", ".join(f"{tau:.2f} with {in_words(number)}" for number, tau in points)
        ahead = outlook(found.tokens, found.tau, found.tau_error[-1], FURTHER)
        words += f"; {_ahead(ahead)}" if ahead else ""
        said.append(f"{method_style(found.method).label}: tau {words}")
    return f"Held-out acceptance over training tokens. {'. '.join(said) or 'No run yet'}."


def _ahead(ahead: Outlook) -> str:
    span = f"{ahead.low:.2f} to {ahead.high:.2f}"
    return f"with {in_words(ahead.tokens)} perhaps {ahead.middle:.2f} ({span})"


def training(data: Mapping[str, Sequence[Mapping]]) -> Figure:
    """Loss and held-out tau of the shipped trainings, over the tokens they have read.

    tau is for the number of drafted tokens that all of them were judged at.
    """
    figure = new_figure(10, 4.5)
    figure.subplots_adjust(left=0.07, right=0.985, bottom=0.26, top=0.89, wspace=0.2)
    left, right = figure.subplots(1, 2)
    depth = common_depth(data["shipped"])
    for run in data["shipped"]:
        style = method_style(run["method"])
        seen = [entry["places"] / 1e6 for entry in run["curve"]]
        losses = [entry["loss"] for entry in run["curve"]]
        taus = [tau_of(entry["alpha"][:depth]) for entry in run["curve"]]
        left.plot(seen, losses, **style.line(), label=style.label, markersize=5)
        right.plot(seen, taus, **style.line(), markersize=5)
    left.set(ylabel="training loss, smoothed", xlabel="tokens read, millions")
    right.set(ylabel=f"tau on held-out texts, k = {depth}", xlabel="tokens read, millions")
    lines, names = left.get_legend_handles_labels()
    figure.legend(lines, names, ncols=min(len(names), 6), loc="lower center", fontsize=9.5)
    left.set_title("Every shipped training, while it learned")
    note = "losses of different methods are not to be compared"
    right.set_title(note, fontsize=9.5, color=PALE, weight="normal")
    return figure


def common_depth(runs: Sequence[Mapping]) -> int:
    """How many drafted tokens all runs were judged at; 0 for no run."""
    return min((len(entry["alpha"]) for run in runs for entry in run["curve"]), default=0)


def describe_training(data: Mapping[str, Sequence[Mapping]]) -> str:
    """The picture in words: where each training ended."""
    depth = common_depth(data["shipped"])
    ends = [
        f"{method_style(run['method']).label} {tau_of(run['curve'][-1]['alpha'][:depth]):.2f}"
        for run in data["shipped"]
    ]
    ended = f"tau with k = {depth} at the end: {', '.join(ends)}" if ends else "No run yet"
    return f"Loss and held-out tau while drafts are trained. {ended}."


def method_style(method: str) -> Style:
    """The look of a method under the name of its weights."""
    trained = {"method": "draft_model", "model": "trained"}
    return look(method, trained if method == "draft_model" else method)


def in_words(tokens: float) -> str:
    """A number of tokens as 246 k or 1.2 M."""
    if tokens < 999_500:
        return f"{tokens / 1e3:.0f} k"
    return f"{tokens / 1e6:.1f}".removesuffix(".0") + " M"
