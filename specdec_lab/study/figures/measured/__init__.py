"""Figures of what ``python -m specdec_lab measure`` recorded, the reader's beside the course's.

``MEASURED`` maps the name of a figure to its part of the measurements and its functions. Their
``data`` are the recordings of that part by machine, as `measured` reads them, the course's own
machine first; one machine is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lab.study.figures.measured.batches import batches, describe_batches
from specdec_lab.study.figures.measured.methods import describe_methods, methods
from specdec_lab.study.figures.style import Picture, write_figure
from specdec_lab.study.measurements import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Recordings = Mapping[str, dict]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of one part of the measurements, and the figure in words."""

    part: str
    draw: Callable[[Recordings], Figure]
    describe: Callable[[Recordings], str]


MEASURED = {
    "04_batches": Measured("batch", batches, describe_batches),
    "08_methods": Measured("decode", methods, describe_methods),
}


def show_measured(slug: str) -> Picture:
    """Draw a figure from all machines' recordings, write its files, and return it to show.

    Raises OSError if the part was measured nowhere.
    """
    figure = MEASURED[slug]
    data = measured(figure.part)
    if not data:
        raise OSError(
            f"Nothing is recorded for {slug}; run: python -m specdec_lab measure {figure.part}"
        )
    drawn = figure.draw(data)
    png = write_figure(drawn, slug)
    return Picture(png, figure.describe(data), round(drawn.get_figwidth() * 100))
