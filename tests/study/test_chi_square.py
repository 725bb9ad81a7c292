"""The closed form of the chi-square test against tables and against simulation."""

import math

import numpy as np
import pytest

from specdec_lab.study.chi_square import (
    critical_value,
    distance,
    power,
    samples_needed,
    survival,
)

RIGHT = {0: 0.5, 1: 0.3, 2: 0.2}
WRONG = {0: 0.48, 1: 0.31, 2: 0.21}


@pytest.mark.parametrize(
    ("x", "dof", "tail"), [(5.991, 2, 0.05), (18.307, 10, 0.05), (38.885, 26, 0.05)]
)
def test_survival_agrees_with_tables(x, dof, tail):
    assert survival(x, dof) == pytest.approx(tail, abs=2e-5)
    assert critical_value(tail, dof) == pytest.approx(x, abs=2e-3)


def test_noncentral_survival_agrees_with_simulation():
    rng = np.random.default_rng(0)
    drawn = ((rng.normal(size=(200_000, 4)) + np.array([3.0, 0, 0, 0])) ** 2).sum(1)
    for x in (5, 13, 25):
        assert survival(x, 4, 9.0) == pytest.approx((drawn > x).mean(), abs=5e-3)
    assert survival(30.0, 4, 1e6) == 1.0


def test_odd_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="even"):
        survival(1.0, 3)


def test_power_is_the_level_for_equal_laws_and_grows_with_samples():
    assert power(1000, RIGHT, RIGHT) == pytest.approx(1e-4, rel=1e-6)
    needed = samples_needed(RIGHT, WRONG)
    assert power(needed, RIGHT, WRONG) == pytest.approx(0.9, abs=1e-6)
    assert power(needed / 2, RIGHT, WRONG) < 0.9 < power(2 * needed, RIGHT, WRONG)
    assert samples_needed(RIGHT, RIGHT) == math.inf


def test_power_agrees_with_a_simulated_test():
    num_samples, rng = 5_000, np.random.default_rng(1)
    counts = rng.multinomial(num_samples, list(WRONG.values()), size=4_000)
    expected = num_samples * np.array(list(RIGHT.values()))
    statistic = ((counts - expected) ** 2 / expected).sum(1)
    noticed = (statistic > critical_value(0.01, 2)).mean()
    assert power(num_samples, RIGHT, WRONG, alpha=0.01) == pytest.approx(noticed, abs=0.03)
    assert distance(RIGHT, WRONG) == pytest.approx(0.02**2 / 0.5 + 0.01**2 / 0.3 + 0.01**2 / 0.2)
