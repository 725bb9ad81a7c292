"""Ours beside what people would use instead, from `measure peers` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import PALE, lighter
from specdec_lab.study.figures.style import METHODS, new_figure


@dataclass(frozen=True, slots=True)
class Arm:
    """A program that took part: its name, the method that gives its colour, and whose it is."""

    label: str
    method: str
    is_ours: bool = False

    @property
    def look(self) -> dict[str, object]:
        """The bar's look: ours full, others pale with a border."""
        color = METHODS[self.method].color
        if self.is_ours:
            return {"color": color, "edgecolor": color}
        return {"color": lighter(color, 0.65), "edgecolor": color}


ARMS = {
    "transformers": Arm("transformers, plain", "none"),
    "llama_cpp": Arm("llama.cpp, 4-bit weights", "none"),
    "ours": Arm("ours, plain", "none", True),
    "transformers_lookup": Arm("transformers, prompt lookup", "ngram"),
    "flashspec_ngram": Arm("flashspec, n-gram", "ngram"),
    "ours_ngram": Arm("ours, n-gram", "ngram", True),
    "arctic_suffix": Arm("arctic's suffix, our loop", "suffix"),
    "suffix_gpu": Arm("suffix-gpu, our loop", "suffix"),
    "ours_suffix": Arm("ours, suffix", "suffix", True),
    "transformers_assisted": Arm("transformers, assisted", "draft_model"),
    "transformers_assisted_k": Arm("transformers, assisted, fixed k", "draft_model"),
    "ours_draft": Arm("ours, the same draft model", "draft_model", True),
}


def peers(data: Mapping[str, dict]) -> Figure:
    """Tokens per second by domain and program, median of the rounds and their spread; a row of
    charts a machine.

    ``data``: machine -> what `measure peers` records, or another race of programs.
    """
    first = next(iter(data.values()))
    num_arms = len(_arms(first))
    figure = new_figure(10.4, 0.75 + (0.95 + 0.27 * num_arms) * len(data))
    height = figure.get_figheight()
    rows = figure.subplots(len(data), len(first["domains"]), squeeze=False, sharey="row")
    figure.subplots_adjust(
        *(0.225, 0.58 / height, 0.985, 1 - 0.85 / height),
        wspace=0.12,
        hspace=0.85 / (0.27 * num_arms),
    )
    for (machine, recording), row in zip(data.items(), rows, strict=True):
        for axes, (domain, result) in zip(row, recording["domains"].items(), strict=False):
            _bars(axes, result)
            axes.set_title(domain, fontsize=11)
        row[0].annotate(machine, (0, 1), (-150, 22), **NAME)
        row[len(row) // 2].set_xlabel("tokens per second (dashed: ours, plain)")
    figure.suptitle(TITLE, x=0.012, y=1 - 0.06 / height, ha="left", va="top", **BOLD)
    return figure


TITLE = "Ours and other programs: bars are medians, lines the lowest and highest round"
NUMBER = {
    **{"textcoords": "offset points", "va": "center", "fontsize": 9},
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
}
BOLD = {"weight": "bold", "fontsize": 12}
NAME = {"xycoords": "axes fraction", "textcoords": "offset points", "color": PALE, "fontsize": 9.5}


def describe_peers(data: Mapping[str, dict]) -> str:
    """The picture in words: every program's median in every domain of the first machine."""
    machine, recording = next(iter(data.items()))
    said = []
    for domain, result in recording["domains"].items():
        speeds = (f"{_arm(a).label} {s:.1f}" for a, s in result["tokens_per_second"].items())
        said.append(f"{domain}: {', '.join(speeds)}")
    return f"Tokens per second on {machine}. {'; '.join(said)}."


def _bars(axes: Axes, result: Mapping) -> None:
    arms = [name for name in ARMS if name in result["rounds"]]
    arms += [name for name in result["rounds"] if name not in ARMS]
    for place, name in enumerate(arms):
        middle, rounds = result["tokens_per_second"][name], result["rounds"][name]
        axes.barh(place, middle, 0.72, lw=1.4, **_arm(name).look)
        axes.hlines(place, min(rounds), max(rounds), color="#222222", lw=1.6)
        axes.annotate(f"{middle:.1f}", (max(rounds), place), (5, 0), **NUMBER)
    if "ours" in arms:
        plain = result["tokens_per_second"]["ours"]
        axes.axvline(plain, color=METHODS["none"].color, lw=1.4, ls="--", zorder=0)
    axes.set_yticks(range(len(arms)), [_arm(name).label for name in arms], fontsize=9.5)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(0, 1.18 * max(max(rounds) for rounds in result["rounds"].values()))
    axes.grid(visible=False, axis="y")


def _arms(recording: Mapping) -> dict[str, None]:
    return dict.fromkeys(
        arm for result in recording["domains"].values() for arm in result["rounds"]
    )


def _arm(name: str) -> Arm:
    return ARMS.get(name) or Arm(name.replace("_", " "), "theory", name.startswith("ours"))
