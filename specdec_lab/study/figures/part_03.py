"""Figures of notebook 03: two laws and their overlap, broken rules, and what else moves a law."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.style import METHODS, TOKEN_COLORS, new_figure

TARGET, DRAFT = METHODS["none"].color, METHODS["draft_model"].color
ACCEPTED, RECOVERED = TOKEN_COLORS["accepted"], TOKEN_COLORS["recovered"]
WRONG, RIGHT = "#a50f15", "#2b7a5d"  # of no method: a law that is not the target's, and one that is
ROUNDING = 1e-12  # what float64 may do to a law


def p_q_residual(data: dict) -> Figure:
    """Left the laws p and q, right what a step emits: accepted and recovered parts add up to p.

    ``data``: ``tokens``, ``laws`` (one entry per temperature), ``shown`` (the temperature drawn).
    """
    law = law_at(data, data["shown"])
    figure = new_figure(8, 4.7)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
    figure.subplots_adjust(left=0.15, right=0.985, top=0.83, bottom=0.12)
    rows = range(len(data["tokens"]))
    left.barh([y - 0.2 for y in rows], law["target_probs"], 0.38, color=TARGET, label="target p")
    left.barh([y + 0.2 for y in rows], law["draft_probs"], 0.38, color=DRAFT, label="draft q")
    _stacked(right, law)
    for axes in (left, right):
        axes.set_xlim(0, 1.08 * max(*law["target_probs"], *law["draft_probs"]))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("probability")
        axes.legend(loc="lower right", bbox_to_anchor=(1.02, 0.09), fontsize=9.5)
    left.set_yticks(rows, data["tokens"])
    left.invert_yaxis()
    right.set(ylim=left.get_ylim(), yticks=())
    left.set_title("What each model says", fontsize=11, fontweight="normal")
    right.set_title("What a step emits", fontsize=11, fontweight="normal")
    figure.suptitle(
        f"Accepted + recovered = p, whatever q is  (temperature {law['temperature']:g}, "
        f"acceptance {law['acceptance']:.2f})",
        x=0.02, y=0.965, ha="left", fontweight="bold", fontsize=12,
    )  # fmt: skip
    return figure


def law_at(data: dict, temperature: float) -> dict:
    """The entry of ``data["laws"]`` for a temperature."""
    return next(law for law in data["laws"] if law["temperature"] == temperature)


def describe_p_q(data: dict, temperature: float) -> str:
    """The panel's sentence: the temperature, the acceptance and where the laws differ most."""
    law = law_at(data, temperature)
    gaps = [q - p for p, q in zip(law["target_probs"], law["draft_probs"], strict=True)]
    named = gaps[:-1]  # the last entry is all others
    over, under = named.index(max(named)), named.index(min(named))
    sentence = (
        f"temperature = {temperature:g}: a drafted token is accepted with probability "
        f"{law['acceptance']:.3f} (the sum of min(p, q) over the whole vocabulary)."
    )
    if max(map(abs, gaps)) < 1e-6:
        return f"{sentence} Both laws are one-hot at the same token: nothing is ever refused."
    return (
        f"{sentence} The draft offers {data['tokens'][over]} too often "
        f"({law['draft_probs'][over]:.3f} for {law['target_probs'][over]:.3f}); most is "
        f"recovered for {data['tokens'][under]}."
    )


def broken_rules(data: dict) -> Figure:
    """Bars on a log axis: total variation between each rule's law and the target's.

    ``data["rules"]``: ``name``, ``total_variation``, ``right`` (bool) and ``tokens_per_step``.
    """
    figure = new_figure(7.6, 4.3)
    figure.subplots_adjust(left=0.34, right=0.97)
    axes = figure.subplots()
    rows = sorted(data["rules"], key=lambda row: row["total_variation"])
    for y, row in enumerate(rows):
        apart = row["total_variation"]
        text = f"{apart:.2g}"
        if row["right"]:
            apart, text = 3 * ROUNDING, f"0: right, {row['tokens_per_step']:.2f} tokens a step"
        else:
            axes.barh(y, apart, 0.62, color=WRONG)
        axes.annotate(
            text, (apart, y), (5, 0), textcoords="offset points", va="center", fontsize=9,
            color=RIGHT if row["right"] else "black",
        )  # fmt: skip
    axes.axvline(ROUNDING, color="black", linestyle="--", linewidth=1.4)
    axes.text(ROUNDING / 1.6, 0, "bound of our test", fontsize=9, va="center", ha="right")
    axes.set_xscale("log")
    axes.set_xlim(1e-17, 30)
    axes.set_ylim(-0.7, len(rows) - 0.4)
    axes.set_yticks(range(len(rows)), [row["name"].replace("_", " ") for row in rows])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("total variation from the target's law (log axis)")
    axes.set_title("Nine broken rules have another law; one is only just wrong", x=-0.52)
    return figure


def not_an_approximation(data: dict) -> Figure:
    """Points on a log axis: how far each change moves the law at the places of real texts.

    ``data["changes"]``: ``label``, ``places`` and ``total_variation`` (one value per place).
    """
    figure = new_figure(7.6, 3.9)
    figure.subplots_adjust(left=0.11, right=0.74)
    axes = figure.subplots()
    looks = [(DRAFT, "v"), (TARGET, "s"), (RIGHT, "o")]
    above = math.inf
    for change, (color, marker) in zip(data["changes"], looks, strict=True):
        floored = [max(value, 1e-17) for value in change["total_variation"]]
        axes.plot(
            change["places"], floored, marker, color=color, markersize=4.5, alpha=0.85,
            linestyle="none",
        )  # fmt: skip
        above = min(_middle(floored), above / 60)  # labels must not lie on each other
        axes.annotate(
            change["label"], (1.02, above), xycoords=("axes fraction", "data"),
            va="center", fontsize=10, color=color,
        )  # fmt: skip
    axes.axhline(ROUNDING, color="black", linestyle="--", linewidth=1.4)
    axes.text(0, ROUNDING * 2, "bound of the exactness test, 1e-12", fontsize=9)
    axes.set_yscale("log")
    axes.set_ylim(3e-18, 3)
    axes.set_xlabel("place in three generated texts")
    axes.set_ylabel("total variation from p")
    axes.set_title("Rounding weights moves the law; speculation does not", x=-0.14)
    return figure


def typical_acceptance(data: dict) -> Figure:
    """Bars: the target's law and the law that typical acceptance really has, at one place.

    ``data``: ``tokens``, ``target_probs``, ``emitted`` and ``total_variation``.
    """
    figure = new_figure(7.6, 3.6)
    figure.subplots_adjust(bottom=0.29, left=0.09, right=0.985)
    axes = figure.subplots()
    places = range(len(data["tokens"]))
    axes.bar([x - 0.2 for x in places], data["target_probs"], 0.38, color=TARGET, label="target p")
    axes.bar(
        [x + 0.2 for x in places], data["emitted"], 0.38, color=WRONG,
        label="emitted under typical acceptance",
    )  # fmt: skip
    axes.set_xticks(places, data["tokens"], rotation=40, ha="right", fontsize=9)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("probability")
    axes.legend(loc="upper center", fontsize=10)
    axes.set_title(
        f"Typical acceptance has another law: total variation {data['total_variation']:.2f}"
    )
    return figure


FIGURES = {
    "03_broken_rules": broken_rules,
    "03_not_an_approximation": not_an_approximation,
    "03_p_q_residual": p_q_residual,
    "03_typical_acceptance": typical_acceptance,
}


def _stacked(axes: Axes, law: dict) -> None:
    rows = range(len(law["accepted"]))
    accepted, recovered = law["accepted"], law["recovered"]
    axes.barh(rows, accepted, 0.76, color=ACCEPTED, label="accepted: min(p, q)")
    axes.barh(rows, recovered, 0.76, left=accepted, color=RECOVERED, label="recovered: (p - q)+")
    axes.plot(
        law["target_probs"], rows, "|", color="black", markersize=17, markeredgewidth=2,
        label="target p",
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
