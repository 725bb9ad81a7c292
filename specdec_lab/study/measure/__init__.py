"""Speed on this machine, side by side; ``python -m specdec_lab measure`` runs it.

One file a part, such as `cost` or `decode`; `parts` says what a part is made of, and runs it. Each
part alternates its arms inside one run and reports medians, since a shared machine is only good for
ratios; the recordings lie in ``data/measurements/<machine>/``.
"""

from specdec_lab.study.measure.cost import measure_cost
from specdec_lab.study.measure.timing import alternate, machine_name, seconds_of, stopwatch

__all__ = ["alternate", "machine_name", "measure_cost", "seconds_of", "stopwatch"]
