"""How every figure looks, and the one way to save one: same numbers, same bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from specdec_lab.study import recordings
from specdec_lab.study.figures import FIGURES

DPI = 150  # of stored pictures; they are shown at 100 pixels an inch
PALETTE = 48  # colours of a stored PNG
RC = {
    "svg.hashsalt": "specdec_lab",  # the same ids in every run
    "font.family": "DejaVu Sans",  # comes with matplotlib, and has all Turkish and Greek letters
    "axes.titlelocation": "left",
    "axes.titley": 1,  # where a title stands anyway; to look for a place costs a third of a picture
    "axes.titleweight": "bold",
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "legend.frameon": False,
    "grid.color": "#e3e3e3",
}
NO_DATE = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


@dataclass(frozen=True, slots=True)
class Style:
    """A method's fixed look: colour, marker, dash and the name that stands at its line."""

    color: str
    marker: str
    dash: str
    label: str

    def line(self) -> dict[str, str]:
        """Arguments of ``Axes.plot`` for a line of this method."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dash}


METHODS = {
    "none": Style("#6b6b6b", "o", "-", "plain decoding"),
    "ngram": Style("#de8f05", "s", "-", "n-gram"),
    "suffix": Style("#56b4e9", "D", "-", "suffix decoding"),
    "draft_model": Style("#0173b2", "^", "-", "draft model"),
    "pard": Style("#ca9161", "v", "-", "PARD"),
    "mlp_speculator": Style("#cc78bc", "P", "-", "MLP speculator"),
    "mtp": Style("#029e73", "X", "-", "multi-token prediction"),
    "eagle": Style("#d55e00", "*", "-", "EAGLE"),
    "theory": Style("#000000", "", "--", "theory"),
}
# Pale, as they stand behind text; each kind has a mark too, which needs no colour.
TOKEN_COLORS = {
    "plain": "#dddddd",
    "accepted": "#9fdcc6",
    "recovered": "#f7bd95",
    "bonus": "#a3cfee",
    "rejected": "#ffffff",
}
TOKEN_MARKS = {"plain": "○", "accepted": "✓", "recovered": "↻", "bonus": "+", "rejected": "✗"}


def use_theme() -> None:
    """Set matplotlib to the course's look, whatever it was set to before."""
    import seaborn

    matplotlib.style.use("default")
    seaborn.set_theme(style="whitegrid", palette="colorblind", font="DejaVu Sans", rc=RC)


def new_figure(width: float = 7, height: float = 4) -> Figure:
    """An empty figure of a size in inches, with fixed margins; add axes with ``subplots``.

    It is no figure of pyplot: nothing keeps it alive and no notebook shows it by itself.
    """
    use_theme()
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=0.8 / width, right=1 - 0.3 / width, bottom=0.65 / height, top=1 - 0.5 / height
    )
    return figure


def render(figure: Figure, kind: str = "png", dpi: int = DPI) -> bytes:
    """The bytes of a figure as ``png`` or ``svg``, without date and program name.

    A PNG gets a palette: a third of the size, and no difference to the eye in charts like ours.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=NO_DATE[kind])
    return _with_palette(buffer) if kind == "png" else buffer.getvalue()


def _with_palette(png: io.BytesIO) -> bytes:
    picture = Image.open(png).convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True, dpi=(DPI, DPI))
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as a notebook shows and stores it: a PNG with a description."""

    png: bytes
    alt: str
    width: int

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple:
        shown = {"image/png": base64.b64encode(self.png).decode(), "text/plain": self.alt}
        return shown, {"image/png": {"width": self.width, "alt": self.alt}}


def save_figure(
    figure: Figure,
    slug: str,
    data: Mapping[str, object],
    alt: str | None = None,
    **facts: object,
) -> Picture:
    """Record the numbers of a figure, write its PNG and SVG, and return the picture to show.

    ``alt``, else ``data["alt"]``, describes the picture in words. ``facts`` such as a seed go into
    the provenance. Numbers are recorded rounded; where that changes them, the figure is drawn
    again from the record, so that the files are what ``python -m specdec_lab figures`` draws.
    """
    alt = alt or data.get("alt")
    if not alt:
        raise ValueError(f"Describe figure {slug} in words: pass alt, or data with 'alt'.")
    recorded = recordings.save(slug, data, **facts)
    if recorded != data and slug in FIGURES:
        figure = FIGURES[slug](recorded)
    png = write_figure(figure, slug)
    return Picture(png, str(alt), round(figure.get_figwidth() * 100))


def write_figure(figure: Figure, slug: str) -> bytes:
    """Write ``figures/<slug>.png`` and ``.svg``; returns the bytes of the PNG."""
    folder = recordings.output_folder("figures")
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("svg", "png"):
        drawn = render(figure, kind)
        (folder / f"{slug}.{kind}").write_bytes(drawn)
    return drawn
