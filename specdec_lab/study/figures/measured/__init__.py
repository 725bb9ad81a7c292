"""Figures of what ``python -m specdec_lab measure`` recorded, the reader's beside the course's.

``MEASURED`` maps the name of a figure to its part of the measurements and its functions. Their
``data`` are the recordings of that part by machine, as `measured` reads them, the course's own
machine first; one machine is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lab.study.figures.measured import acceptance
from specdec_lab.study.figures.measured.all_methods import (
    all_methods,
    describe_all_methods,
    describe_price,
    price,
)
from specdec_lab.study.figures.measured.batches import batches, describe_batches
from specdec_lab.study.figures.measured.implementations import (
    describe_implementations,
    implementations,
)
from specdec_lab.study.figures.measured.methods import describe_methods, methods
from specdec_lab.study.figures.measured.peers import describe_peers, peers
from specdec_lab.study.figures.measured.profile import describe_profile, profile
from specdec_lab.study.figures.style import Picture, write_figure
from specdec_lab.study.measurements import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Recordings = Mapping[str, dict]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of one entry of a part of the measurements, and the figure in words.

    Where there is no room for ``every_machine``, the first one is drawn.
    """

    part: str
    entry: str
    draw: Callable[[Recordings], Figure]
    describe: Callable[[Recordings], str]
    every_machine: bool = True

    def data(self) -> dict[str, dict]:
        """The recordings of all machines that have what is drawn; {} if none has."""
        found = measured(self.part)
        return {machine: data for machine, data in found.items() if self.entry in data}


MEASURED = {
    "01_profile": Measured("cost", "profile", profile, describe_profile),
    "04_batches": Measured("batch", "batches", batches, describe_batches),
    "06_outside": Measured("outside", "domains", peers, describe_peers),
    "06_implementations": Measured(
        "outside", "proposals", implementations, describe_implementations
    ),
    "08_methods": Measured("decode", "cells", methods, describe_methods),
    "08_peers": Measured("peers", "domains", peers, describe_peers),
    "13_all_methods": Measured("decode", "cells", all_methods, describe_all_methods, False),
    "13_price": Measured("decode", "cells", price, describe_price, False),
    "13_by_position": Measured(
        "acceptance", "methods", acceptance.by_position, acceptance.describe_by_position, False
    ),
    "13_against_copying": Measured(
        "acceptance",
        "methods",
        acceptance.against_copying,
        acceptance.describe_against_copying,
        False,
    ),
    "13_by_temperature": Measured(
        "acceptance",
        "methods",
        acceptance.by_temperature,
        acceptance.describe_by_temperature,
        False,
    ),
    "13_vocabulary": Measured(
        "acceptance",
        "methods",
        acceptance.vocabulary_cap,
        acceptance.describe_vocabulary_cap,
        False,
    ),
}


def show_measured(slug: str) -> Picture:
    """Draw a figure from all machines' recordings, write its files, and return it to show.

    Raises OSError if no machine has the numbers.
    """
    figure = MEASURED[slug]
    data = figure.data()
    if not data:
        command = f"python -m specdec_lab measure {figure.part}"
        raise OSError(f"There are no numbers for figure {slug} yet; run {command}.")
    drawn = figure.draw(data)
    png = write_figure(drawn, slug)
    return Picture(png, figure.describe(data), round(drawn.get_figwidth() * 100))
