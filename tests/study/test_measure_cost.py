"""Clocks and the cost of rows: arms that alternate, shares, names. No clock is tested.

pytest tests/study/test_measure_cost.py
"""

import pytest
import torch

from specdec_lab.study.measure import cost, timing
from toys import random_target


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


def test_arms_alternate_within_a_round():
    order: list[str] = []
    arms = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert timing.alternate(arms, 3) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert order == list("ababab")


def test_the_stopwatch_times_any_number_of_rows(target):
    timed = timing.stopwatch(target, context=10, most_rows=5)
    assert all(timed(rows) > 0 for rows in (1, 5, 1))


def test_cost_is_relative_to_one_row(target):
    result = cost.measure_cost(target, rows=(1, 2, 5), context=16, rounds=2)
    assert set(result["cost"]) == {"1", "2", "5"}
    assert result["cost"]["1"] == 1
    assert all(value > 0 for value in result["seconds"].values())


def test_overhead_is_a_share(target):
    shares = cost.measure_overhead(target, [1, 2, 3], max_new_tokens=8, rounds=1)
    assert set(shares) == {"greedy", "temperature_1"}
    assert all(0 < share < 1 for share in shares.values())


def test_the_machine_has_a_short_name():
    assert timing.machine_name().endswith("-threads")
    assert " " not in timing.machine_name()
