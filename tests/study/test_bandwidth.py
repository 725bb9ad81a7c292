"""Measuring rows: the right products, the right shapes, all arms in one round. No clock is tested.

pytest tests/study/test_bandwidth.py
"""

import pytest
import torch

from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Architecture, Transformer
from specdec_lab.study import bandwidth
from specdec_lab.study.roofline import product_weights
from specdec_lab.study.stopwatch import Times


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "hidden_size": 16, "num_layers": 2, "num_heads": 4, "head_dim": 4}
    arch = Architecture(**shape, num_kv_heads=2, mlp_size=24, inv_freq=(1.0, 0.1), tied=True)
    return Target(Transformer(arch), max_context=64)


def test_the_three_products_have_the_same_weights(target):
    arch = target.model.arch
    flat = torch.arange(product_weights(arch)).float()
    stock = bandwidth._cut(flat, arch)
    packed = [m for m in target.model.modules() if isinstance(m, PackedLinear)]
    assert sum(w.numel() for w in stock) == flat.numel()
    assert sum(layer.in_features * layer.out_features for layer in packed) == flat.numel()
    assert stock[-1].shape == (arch.vocab_size, arch.hidden_size)


def test_rows_are_measured_for_every_product(target):
    measured = bandwidth.measure_rows(target, rows=(1, 5), rounds=3)
    assert set(measured["seconds"]) == set(measured["cost"]) == set(bandwidth.PRODUCTS)
    assert all(len(values) == 2 for values in measured["seconds"].values())
    assert all(values[0] == 1 for values in measured["cost"].values())
    device = bandwidth.this_machine(measured)
    assert device.bandwidth == product_weights(target.model.arch) * 4 / measured["read_seconds"]
    assert device.ridge_rows(4) > 0


def test_costs_are_ratios_within_a_round():
    times = Times({"stock 1": [1.0, 10.0, 2.0], "stock 5": [2.0, 30.0, 8.0]})
    assert bandwidth._cost(times, "stock", 5, 1) == 3


def test_both_phases_are_measured_for_every_length(target):
    table = bandwidth.measure_phases(target, list(range(30)), (4, 20), rounds=3, new=3)
    assert [row["prompt"] for row in table] == [4, 20]
    assert all(row["ttft"] > 0 and row["itl"] > 0 for row in table)
    assert table[1]["read"] == 20 / table[1]["ttft"]


@pytest.mark.parametrize(("stock", "said"), [(3.0, "hides"), (1.4, "does not hide")])
def test_the_verdict_depends_on_what_was_measured(stock, said):
    measured = {
        "rows": [1, 5],
        "cost": {"stock": [1, stock], "packed": [1, 1.25]},
        "seconds": {"stock": [0.1, 0.3], "packed": [0.1, 0.2]},
    }
    text = bandwidth.verdict(measured)
    assert f"stock product {said}" in text
    assert f"{stock:.2f} times one row, prepacked 1.25 times, and 1.50 times as long" in text
