"""The figures of the course, one file per notebook: functions ``data -> matplotlib Figure``.

``FIGURES`` maps the name of a figure, such as ``02_one_step``, to its function. A part names its
own in a dict ``FIGURES`` of its file ``part_NN.py``, which is imported when first asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[dict], "Figure"]


class Registry(Mapping[str, Drawing]):
    """Every figure's function by the figure's name; looking one up imports its part only."""

    def __getitem__(self, slug: str) -> Drawing:
        """The function of a figure; KeyError for a name that no part knows."""
        part = f"part_{slug[:2]}"
        if part not in _parts():
            raise KeyError(slug)
        return _figures_of(part)[slug]

    def __iter__(self) -> Iterator[str]:
        """All names, in the order of the course."""
        for part in _parts():
            yield from sorted(_figures_of(part))

    def __len__(self) -> int:
        """How many figures the course has."""
        return sum(1 for _ in self)


def _parts() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("part_"))


def _figures_of(part: str) -> dict[str, Drawing]:
    return importlib.import_module(f"{__name__}.{part}").FIGURES


FIGURES = Registry()


def redraw_all(report: Callable[[str], object] = print) -> list[str]:
    """Draw every figure again from what is recorded and measured; returns their names.

    Figures whose numbers are not there yet are named in the report and left alone.
    """
    from specdec_lab.study import recordings
    from specdec_lab.study.figures.style import write_figure

    recorded, drawn = set(recordings.slugs()), []
    for slug, draw in FIGURES.items():
        if slug not in recorded:
            report(f"{slug}: no numbers recorded yet; run its notebook.")
            continue
        write_figure(draw(recordings.load(slug)), slug)
        report(f"{slug}: drawn.")
        drawn.append(slug)
    return drawn + _redraw_measured(report)


def _redraw_measured(report: Callable[[str], object]) -> list[str]:
    """The same for the figures of ``measure``: every machine that has numbers is in them."""
    from specdec_lab.study.figures.measured import MEASURED, show_measured

    drawn = []
    for slug, figure in MEASURED.items():
        machines = figure.data()
        if not machines:
            report(f"{slug}: not measured yet; run python -m specdec_lab measure {figure.part}.")
            continue
        show_measured(slug)
        report(f"{slug}: drawn from {', '.join(machines)}.")
        drawn.append(slug)
    return drawn
