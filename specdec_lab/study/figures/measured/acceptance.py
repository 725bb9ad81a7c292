"""What is taken of drafts, from `measure acceptance`: by position, against copying, by temperature,
and under the cap of the draft vocabulary. Nothing here has a clock in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_lab.study.figures.measured.looks import look
from specdec_lab.study.figures.measured.methods import NAMES
from specdec_lab.study.figures.style import METHODS, Style, new_figure

Recording = Mapping[str, object]
SHOWN = ("chat", "code", "json")
INK = "#222222"


def by_position(data: Mapping[str, Recording]) -> Figure:
    """The chance that drafted token i is taken when those before it were, greedy chains, in three
    domains; a dash marks the most that a draft vocabulary allows.

    ``data``: machine -> what `measure acceptance` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    domains = _domains(recording)
    figure = new_figure(11.4, 4.8)
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.27, top=0.85, wspace=0.1)
    row = figure.subplots(1, len(domains), sharex=True, sharey=True, squeeze=False)[0]
    for axes, domain in zip(row, domains, strict=True):
        caps = []
        for style, method, scopes in _greedy(recording):
            if domain in scopes and not _is_tree(method):
                alphas = scopes[domain]["alpha"]
                axes.plot(range(1, len(alphas) + 1), alphas, **style.line(), label=style.label)
                caps.append(scopes[domain]["cap"])
        known = [cap for cap in caps if cap is not None]
        if known:
            axes.hlines(max(known), 0.75, 1.25, color=INK, lw=2.5, zorder=4)
        axes.set_title(NAMES.get(domain, domain), fontsize=11)
        axes.set(xlabel="position in the draft", ylim=(0, 1.03))
        axes.xaxis.get_major_locator().set_params(integer=True)
    row[0].set_ylabel("alpha: taken, if judged")
    _legend(figure, row)
    _title(figure, "How far a draft is right (dash: the most that the draft vocabulary allows)")
    return figure


def describe_by_position(data: Mapping[str, Recording]) -> str:
    """The picture in words: alphas of every chain, all English prompts together."""
    recording = next(iter(data.values()))
    said = [
        f"{style.label} {_numbers(scopes['all']['alpha'])}"
        for style, method, scopes in _greedy(recording)
        if not _is_tree(method)
    ]
    return f"Chance that each drafted token is taken, by position: {'; '.join(said)}."


def against_copying(data: Mapping[str, Recording]) -> Figure:
    """tau of every trained method less that of the better copying one, by domain, with intervals
    over the same prompts; a mark is full where the interval lies above 0.

    ``data``: machine -> what `measure acceptance` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    rivals = [
        (style, method["against_copying"])
        for style, method, _ in _greedy(recording)
        if method.get("against_copying") and not _is_twin(method)
    ]
    domains = list(recording["domains"])
    figure = new_figure(11.4, 1.5 + 0.33 * len(rivals))
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.175, right=0.99, bottom=0.6 / height, top=1 - 0.75 / height, wspace=0.08
    )
    row = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
    for axes, domain in zip(row, domains, strict=True):
        axes.axvline(0, color=METHODS["none"].color, lw=1.4, zorder=1)
        for y, (style, found) in enumerate(rivals):
            if domain in found:
                _difference(axes, y, style, found[domain])
        axes.set_title(_against(domain, rivals), fontsize=10)
        axes.grid(visible=False, axis="y")
        axes.locator_params(axis="x", nbins=3)
        axes.xaxis.set_major_formatter("{x:g}")
    figure.supxlabel("tokens per forward less those of the better copying method", fontsize=10)
    row[0].set_yticks(range(len(rivals)), [style.label for style, _ in rivals])
    row[0].set_ylim(len(rivals) - 0.4, -0.6)
    _title(figure, "Which drafts are taken more often than copied text (full mark: 95 % above 0)")
    return figure


def _against(domain: str, rivals: Sequence[tuple[Style, Mapping]]) -> str:
    names = dict.fromkeys(found[domain]["rival"] for _, found in rivals if domain in found)
    words = " or ".join(look(name, name).label.removesuffix(" decoding") for name in names)
    return f"{NAMES.get(domain, domain)}\nless {words}"


def _difference(axes: Axes, y: int, style: Style, found: Mapping) -> None:
    low, high = found["interval"] or [found["difference"]] * 2
    axes.hlines(y, low, high, color=style.color, lw=2, zorder=2)
    inside = style.color if found["wins"] else "white"
    axes.plot(found["difference"], y, style.marker, color=style.color, mfc=inside, zorder=3)


def describe_against_copying(data: Mapping[str, Recording]) -> str:
    """The picture in words: where each method beats copying for certain."""
    recording = next(iter(data.values()))
    said = []
    for style, method, _ in _greedy(recording):
        found = method.get("against_copying")
        if found and not _is_twin(method):
            wins = [NAMES.get(d, d) for d in recording["domains"] if found.get(d, {}).get("wins")]
            said.append(f"{style.label}: {', '.join(wins) or 'nowhere'}")
    return (
        "Tokens per forward less those of the better copying method, by domain. "
        f"The interval lies above 0 for {'; '.join(said) or 'no method yet'}."
    )


def by_temperature(data: Mapping[str, Recording]) -> Figure:
    """The chance that the first drafted token is taken, and tau of chains, by temperature: greedy
    drafts at 0, drafts drawn from their law above it.

    ``data``: machine -> what `measure acceptance` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    figure = new_figure(10.4, 4.6)
    figure.subplots_adjust(left=0.07, right=0.985, bottom=0.28, top=0.86, wspace=0.2)
    row = figure.subplots(1, 2)
    temperatures = [f"{t:g}" for t in recording["temperatures"]]
    for style, method, _ in _greedy(recording):
        scopes = [method["temperatures"][t].get("scopes") for t in temperatures]
        if all(scopes):
            places = [float(t) for t in temperatures]
            first = [s["all"]["alpha"][0] for s in scopes]
            row[0].plot(places, first, **style.line(), label=style.label)
            row[1].plot(places, [_tau(method, t) for t in temperatures], **style.line())
    row[0].set(ylabel="alpha of the first drafted token", ylim=(0, 1.03))
    row[1].set(ylabel="tokens per forward (tau)", ylim=(1, None))
    for axes in row:
        axes.set(xlabel="temperature (0: greedy)", xticks=[float(t) for t in temperatures])
    _legend(figure, row)
    _title(figure, "Drafts on what plain decoding writes at each temperature (tau: k = 4)")
    return figure


def _tau(method: Mapping, temperature: str) -> float:
    """tau of 4 drafted tokens, or of the most that there are."""
    found = method["temperatures"][temperature]
    place = found["ks"].index(4) if 4 in found["ks"] else -1
    return found["scopes"]["all"]["tau"][place]


def describe_by_temperature(data: Mapping[str, Recording]) -> str:
    """The picture in words: the first token's chance at every temperature."""
    recording = next(iter(data.values()))
    temperatures = [f"{t:g}" for t in recording["temperatures"]]
    said = []
    for style, method, _ in _greedy(recording):
        scopes = [method["temperatures"][t].get("scopes") for t in temperatures]
        if all(scopes):
            said.append(f"{style.label} {_numbers([s['all']['alpha'][0] for s in scopes])}")
    return (
        "Chance that the first drafted token is taken at temperatures "
        f"{', '.join(temperatures)}: {'; '.join(said)}."
    )


def vocabulary_cap(data: Mapping[str, Recording]) -> Figure:
    """The most that a draft vocabulary lets acceptance be, by domain: the share of greedy tokens
    that it has, and the mass of the target's law at temperature 1 that it covers.

    ``data``: machine -> what `measure acceptance` records; the first machine is drawn.
    """
    recording = next(iter(data.values()))
    caps = vocabulary_caps(recording)
    domains = [d for d in recording["domains"] if d in caps.get("0", {})]
    figure = new_figure(9.4, 3.6)
    figure.subplots_adjust(left=0.08, right=0.985, bottom=0.2, top=0.85)
    axes = figure.subplots()
    color = METHODS["eagle"].color
    for shift, (temperature, face, words) in enumerate(
        (("0", color, "greedy: share of tokens"), ("1", "white", "T = 1: mass of the law"))
    ):
        found = caps.get(temperature, {})
        places = [i + 0.36 * shift - 0.18 for i, d in enumerate(domains) if d in found]
        values = [found[d] for d in domains if d in found]
        axes.bar(places, values, 0.34, color=face, edgecolor=color, lw=1.2, label=words)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:.2f}",
                (place, value),
                (0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color="#444444",
            )
    axes.set_xticks(range(len(domains)), [NAMES.get(d, d) for d in domains])
    axes.set(ylim=(0, 1.3), yticks=[0, 0.25, 0.5, 0.75, 1], ylabel="can be drafted")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper right", ncols=2, fontsize=9.5)
    _title(figure, "What is not in the draft vocabulary is never taken")
    return figure


def vocabulary_caps(recording: Recording) -> dict[str, dict[str, float]]:
    """By temperature and domain the cap of the first method that has a draft vocabulary."""
    found: dict[str, dict[str, float]] = {}
    for method in recording["methods"].values():
        for temperature, entry in method["temperatures"].items():
            caps = {
                scope: metrics["cap"]
                for scope, metrics in entry.get("scopes", {}).items()
                if metrics["cap"] is not None
            }
            if caps:
                found.setdefault(temperature, caps)
    return found


def describe_vocabulary_cap(data: Mapping[str, Recording]) -> str:
    """The picture in words: the greedy cap of every domain."""
    recording = next(iter(data.values()))
    greedy = vocabulary_caps(recording).get("0", {})
    said = [f"{NAMES.get(d, d)} {greedy[d]:.2f}" for d in recording["domains"] if d in greedy]
    return f"Share of greedy tokens that the draft vocabulary has: {', '.join(said)}."


def _greedy(recording: Recording) -> Iterator[tuple[Style, Mapping, Mapping]]:
    """Look, record and greedy scopes of every method that could draft."""
    for label, method in recording["methods"].items():
        scopes = method["temperatures"].get("0", {}).get("scopes")
        if scopes:
            yield look(label, method["config"]), method, scopes


def _is_twin(method: Mapping) -> bool:
    config = method["config"]
    return not isinstance(config, str) and config.get("model") in ("int4", "int8")


def _is_tree(method: Mapping) -> bool:
    return method["temperatures"]["0"]["tree"]


def _numbers(values: Sequence[float | None]) -> str:
    return ", ".join("-" if value is None else f"{value:.2f}" for value in values)


def _domains(recording: Recording) -> list[str]:
    return [d for d in SHOWN if d in recording["domains"]] or list(recording["domains"])[:3]


def _legend(figure: Figure, row: Sequence[Axes]) -> None:
    lines, names = row[0].get_legend_handles_labels()
    figure.legend(lines, names, ncols=5, loc="lower center", fontsize=9.5)


def _title(figure: Figure, words: str) -> None:
    figure.suptitle(words, x=0.012, ha="left", weight="bold", fontsize=12)
