"""How well a chi-square test can tell two laws apart: its power, in closed form, without samples.

With an even number of degrees of freedom 2m, both laws of the test statistic are questions about
Poisson counts: ``P(chi2 > x) = P(A < m)`` with ``A ~ Poisson(x / 2)``, and under a wrong law
``P(chi2' > x) = P(A < m + J)`` with ``J ~ Poisson(noncentrality / 2)``. So numpy is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

SURE = 1e4  # noncentrality from which the power is 1 for every test of the course


def survival(x: float, dof: int, noncentrality: float = 0.0) -> float:
    """P(statistic > x) for an even number ``dof`` of degrees of freedom; ValueError if odd."""
    if dof % 2 or dof < 2:
        raise ValueError(f"dof must be even and at least 2, not {dof}.")
    if noncentrality > SURE:
        return 1.0
    shift = _poisson(noncentrality / 2)  # P(J = j)
    below = np.cumsum(_poisson(x / 2, dof // 2 + len(shift)))  # P(A <= a)
    return float(min(1.0, shift @ below[dof // 2 - 1 : dof // 2 - 1 + len(shift)]))


def critical_value(alpha: float, dof: int) -> float:
    """The x that a right law exceeds with probability ``alpha``."""
    low, high = 0.0, dof + 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(middle, dof) > alpha else (low, middle)
    return high


def distance(right: Mapping, wrong: Mapping) -> float:
    """Sum of (wrong - right)^2 / right: samples times this is the test's noncentrality."""
    return sum((wrong.get(x, 0.0) - p) ** 2 / p for x, p in right.items())


def power(num_samples: float, right: Mapping, wrong: Mapping, alpha: float = 1e-4) -> float:
    """Chance that a test at level ``alpha`` notices that samples come from ``wrong``."""
    dof = len(right) - 1
    return survival(critical_value(alpha, dof), dof, num_samples * distance(right, wrong))


def samples_needed(
    right: Mapping, wrong: Mapping, alpha: float = 1e-4, wanted: float = 0.9
) -> float:
    """How many samples give the test the power ``wanted``; infinite when the laws are equal."""
    apart = distance(right, wrong)
    if apart < 1e-20:
        return math.inf
    dof = len(right) - 1
    limit, low, high = critical_value(alpha, dof), 0.0, SURE
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(limit, dof, middle) < wanted else (low, middle)
    return high / apart


def _poisson(mean: float, length: int | None = None) -> np.ndarray:
    """P(count = 0, 1, 2, ...) up to where nothing is left, or for ``length`` counts."""
    length = length or int(mean + 12 * math.sqrt(mean) + 30)
    if mean == 0:
        return np.eye(1, length)[0]
    counts = np.arange(length)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, length)))])
    return np.exp(counts * math.log(mean) - mean - log_factorial)
