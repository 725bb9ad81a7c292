"""The cost of rows, shares of a step, names of machines. No clock is tested.

pytest tests/study/test_measure_cost.py
"""

import pytest
import torch

from specdec_lab.study.measure import cost
from specdec_lab.study.measurements import machine_name
from toys import random_target


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


def test_a_forward_of_any_number_of_rows(target):
    forward = cost.forward_of(target, context=10, most_rows=5)
    assert [forward(rows).logits.shape[1] for rows in (1, 5, 1)] == [1, 5, 1]


def test_cost_is_relative_to_one_row(target):
    result = cost.measure_cost(target, rows=(1, 2, 5), context=16, rounds=3)
    assert set(result["cost"]) == {"1", "2", "5"}
    assert result["cost"]["1"] == 1
    assert result["cost_rounds"]["1"] == [1, 1]
    low, high = result["cost_rounds"]["5"]
    assert low <= result["cost"]["5"] <= high
    assert all(value > 0 for value in result["seconds"].values())


def test_overhead_is_a_share(target):
    shares = cost.measure_overhead(target, [1, 2, 3], max_new_tokens=8, rounds=3)
    assert set(shares) == {"greedy", "temperature_1"}
    assert all(0 < share < 1 for share in shares.values())


def test_the_machine_has_a_short_name():
    assert machine_name().endswith("-threads")
    assert " " not in machine_name()
