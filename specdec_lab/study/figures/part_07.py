"""The figure of notebook 07: a proposer of our own beside n-gram, by domain."""

from __future__ import annotations

from matplotlib.figure import Figure

from specdec_lab.study.figures.style import METHODS, new_figure

OWN, BOTH = "#8c510a", "#35978f"
ARMS = {  # key -> colour, hatch, name
    "ngram": (METHODS["ngram"].color, None, "n-gram"),
    "record": (OWN, "//", "our proposer alone"),
    "both": (BOTH, "..", "ours, then n-gram"),
}


def versus_ngram(data: dict) -> Figure:
    """Three bars a domain: n-gram, our proposer, and ours with n-gram going on behind it.

    ``data``: ``k`` and ``domains``, each with ``domain``, ``ngram``, ``record`` and ``both``.
    """
    domains = data["domains"]
    figure = new_figure(8, 0.72 * len(domains) + 1.3)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.16, right=0.97)
    height = 0.26
    for row, domain in enumerate(domains):
        for place, (arm, (color, hatch, _)) in enumerate(ARMS.items()):
            y = row + (place - 1) * height
            look = {"color": color, "hatch": hatch, "edgecolor": "white"}
            axes.barh(y, domain[arm], height * 0.94, **look)
            axes.text(domain[arm] + 0.03, y, f"{domain[arm]:.2f}", va="center", fontsize=9)
    for place, (color, _, name) in enumerate(ARMS.values()):
        axes.text(0.97, 0.2 - 0.07 * place, name, color=color, **_corner(axes))
    axes.axvline(1, color=METHODS["none"].color, lw=2)
    axes.set_yticks(range(len(domains)), [d["domain"].replace("_", " ") for d in domains])
    most = max(domain[arm] for domain in domains for arm in ARMS)
    axes.set(xlim=(0, most * 1.12), xlabel="tokens per forward (tau); the line is plain decoding")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    best = domains[0]
    axes.set_title(
        f"It knows records: {best['both']:.2f} instead of {best['ngram']:.2f} on "
        f"{best['domain']} (k = {data['k']})",
        x=-0.12,
    )
    return figure


def describe_versus_ngram(data: dict) -> str:
    """The picture in words."""
    told = [
        f"{d['domain'].replace('_', ' ')}: n-gram {d['ngram']:.2f}, ours {d['record']:.2f}, "
        f"both {d['both']:.2f}"
        for d in data["domains"]
    ]
    return f"Tokens per forward at k = {data['k']}. " + "; ".join(told) + "."


def _corner(axes: object) -> dict:
    place = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
    return place | {"fontsize": 11, "weight": "bold"}


FIGURES = {"07_versus_ngram": versus_ngram}
