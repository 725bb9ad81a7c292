"""Methods beside each other by kind of text, from `measure decode`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from specdec_lab.study.figures.measured.looks import at_one, fill, look, machine_marks
from specdec_lab.study.figures.style import Style, new_figure
from specdec_lab.study.measure.summary import refused

LABELS = ("ngram", "suffix", "draft_model int8", "draft_model int4")  # need no training
METRICS = (("tau", "tokens per forward"), ("speedup", "speed-up with the prompt"))
NAMES = {"json": "JSON", "code_edit": "code edit"}
GAP = 0.72  # of the width of a domain, taken by its points


def methods(data: Mapping[str, dict], labels: Sequence[str] = LABELS) -> Figure:
    """Tokens per forward (above) and speed-up of whole requests (below) by domain, intervals over
    prompts; a speed-up that is refused is not drawn.

    Below a domain stands rep4, the share of repeated 4-grams in plain decoding's answers. Every
    method has its best k of all domains on the first machine. ``data``: machine -> what
    `measure decode` records.
    """
    chosen = best_cells(next(iter(data.values())), labels)
    domains = _domains(data)
    figure = new_figure(8.6, 6.3)
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.215, top=0.945, hspace=0.1)
    for axes, (metric, words) in zip((top, bottom), METRICS, strict=True):
        _points(axes, data, chosen, metric)
        at_one(axes)
        axes.set(ylabel=words, xlim=(-0.5, len(domains) - 0.5), ylim=(0, None))
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.grid(visible=False, axis="x")
        for place in range(1, len(domains)):
            axes.axvline(place - 0.5, color="#e3e3e3", lw=1)
    bottom.set_xticks(range(len(domains)), _names(data))
    bottom.set_xlabel(contents(next(iter(data.values()))), fontsize=9.5)
    marks = [_mark(style, k) for style, k in chosen.values()]
    for y, handles in ((0.04, marks), (0.0, machine_marks(data))):
        how = {"ncols": len(handles), "loc": "lower center", "fontsize": 9.5}
        figure.legend(handles=handles, bbox_to_anchor=(0.53, y), **how)
    top.set_title("Copying needs a text that repeats; a twin of few bits guesses anywhere")
    return figure


def describe_methods(data: Mapping[str, dict], labels: Sequence[str] = LABELS) -> str:
    """The picture in words: the speed-ups of every method by domain on the first machine."""
    machine, recording = next(iter(data.items()))
    said = []
    for name, (style, k) in best_cells(recording, labels).items():
        scopes = recording["cells"][name]["scopes"]
        numbers = (
            f"{domain} {speedup_in_words(scopes[domain])}" for domain in recording["domains"]
        )
        said.append(f"{style.label} (k = {k}): {', '.join(numbers)}")
    return (
        f"Tokens per forward and speed-up by domain. Speed-up with the prompt, {machine} "
        f"({contents(recording)}): {'; '.join(said)}."
    )


def best_cells(recording: Mapping, labels: Sequence[str]) -> dict[str, tuple[Style, int]]:
    """Cell name -> look and k: of every label the greedy cell that is fastest over all prompts."""
    found = {}
    for label in labels:
        cells = {
            name: cell
            for name, cell in recording["cells"].items()
            if cell["label"] == label and not cell["temperature"] and cell["verify"] == "auto"
        }
        if cells:
            best = max(cells, key=lambda name: believed(cells[name]["scopes"]["all"]))
            found[best] = look(label, cells[best]["config"]), cells[best]["k"]
    return found


def contents(recording: Mapping) -> str:
    """What the speed-ups of `measure decode` are of."""
    rounds = recording["rounds"]
    return (
        f"{recording['prompts']} prompts a kind of text, answers of at most "
        f"{recording['max_new_tokens']} tokens, {rounds} round{'s' * (rounds > 1)}"
    )


def believed(scope: Mapping) -> float:
    """The speed-up with the prompt, 0 where it is refused."""
    return 0.0 if refused(scope) else scope["speedup"]


def speedup_in_words(scope: Mapping) -> str:
    """The speed-up, or that it is refused."""
    return "refused (above tau)" if refused(scope) else f"{scope['speedup']:.2f}"


def _points(
    axes: Axes, data: Mapping[str, dict], chosen: Mapping[str, tuple[Style, int]], metric: str
) -> None:
    """A point and its interval for every domain, method and machine."""
    pairs = [(name, machine) for name in chosen for machine in data]
    for number, (name, machine) in enumerate(pairs):
        shift = GAP * ((number + 0.5) / len(pairs) - 0.5)
        scopes = data[machine]["cells"].get(name, {"scopes": {}})["scopes"]
        style, number_of_machine = chosen[name][0], list(data).index(machine)
        for place, domain in enumerate(_domains(data)):
            if domain in scopes and metric == "speedup" and refused(scopes[domain]):
                how = {"rotation": 90, "ha": "center", "va": "bottom", "color": style.color}
                axes.text(place + shift, 0.05, "refused", fontsize=8, **how)
            elif domain in scopes:
                _point(axes, place + shift, scopes[domain], metric, style, number_of_machine)
                if len(data) == 1:
                    _number(axes, place + shift, scopes[domain], metric)


def _point(
    axes: Axes, place: float, scope: Mapping, metric: str, style: Style, machine: int
) -> None:
    low, high = _ends(scope, metric)
    axes.vlines(place, low, high, color=style.color, lw=2, zorder=2)
    inside = fill(style.color, machine)
    axes.plot(place, scope[metric], style.marker, color=style.color, mfc=inside, zorder=3)


def _number(axes: Axes, place: float, scope: Mapping, metric: str) -> None:
    """The number of a point above its interval."""
    top = place, max(scope[metric], *_ends(scope, metric))
    how = {"ha": "center", "fontsize": 8.5, "color": "#444444"}
    axes.annotate(f"{scope[metric]:.2f}", top, (0, 6), textcoords="offset points", **how)


def _ends(scope: Mapping, metric: str) -> tuple[float, float]:
    """The interval over prompts; the value twice where there is none."""
    return tuple(scope[f"{metric}_interval"] or [scope[metric]] * 2)


def _names(data: Mapping[str, dict]) -> list[str]:
    """The domains as the reader sees them, with the first machine's rep4."""
    plain = next(iter(next(iter(data.values()))["cells"].values()))["scopes"]
    return [f"{NAMES.get(d, d)}\nrep4 {plain[d]['rep4']:.2f}" for d in _domains(data)]


def _domains(data: Mapping[str, dict]) -> list[str]:
    return next(iter(data.values()))["domains"]


def _mark(style: Style, k: int) -> Line2D:
    """A method's entry in the legend."""
    name = f"{style.label}, k = {k}"
    return Line2D([], [], ls="", marker=style.marker, color=style.color, label=name)
