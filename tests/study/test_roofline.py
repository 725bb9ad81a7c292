"""Bytes, FLOPs and least times against numbers worked out by hand.

pytest tests/study/test_roofline.py
"""

import subprocess
import sys

import pytest

from project import ROOT
from specdec_lab.decoding.transformer import Architecture, Transformer
from specdec_lab.study import roofline
from specdec_lab.study.roofline import DEVICES, Device, step_work

SMOLLM2 = Architecture(
    vocab_size=49_152,
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    mlp_size=1_536,
    inv_freq=tuple(range(32)),
    tied=True,
)
TINY = {
    **{"vocab_size": 11, "hidden_size": 8, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2},
    **{"head_dim": 4, "mlp_size": 12, "inv_freq": (1.0, 0.1)},
}
H100 = DEVICES["H100"]


def test_the_weights_of_the_default_model():
    # a layer: q and o 576 * 576, k and v 192 * 576, three of the MLP 576 * 1536
    assert roofline.weights_by_part(SMOLLM2) == {
        "attention": 30 * (2 * 331_776 + 2 * 110_592),
        "mlp": 30 * 3 * 884_736,
        "head": 28_311_552,
    }
    assert roofline.product_weights(SMOLLM2) == 134_479_872
    assert roofline.num_parameters(SMOLLM2) == 134_515_008  # and 61 norms of 576


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": True},
        {"qkv_bias": True, "output_bias": True},
        {"mlp_bias": True},
        {"qk_norm": True},
    ],
)
def test_all_parameters_of_a_model_are_counted(options):
    arch = Architecture(**TINY, **options)
    counted = sum(p.numel() for p in Transformer(arch).parameters())
    assert roofline.num_parameters(arch) == counted


def test_a_token_leaves_23040_bytes_in_the_cache():
    assert roofline.kv_bytes_per_token(SMOLLM2) == 23_040
    assert roofline.kv_bytes_per_token(SMOLLM2, 4) == 46_080
    assert roofline.crossover_context(SMOLLM2) == pytest.approx(11_674, abs=0.5)


def test_the_work_of_one_row_and_of_five():
    one, five = (step_work(SMOLLM2, rows, context=1000, batch=2) for rows in (1, 5))
    assert one.weight_bytes == five.weight_bytes == 268_959_744
    assert one.kv_bytes == five.kv_bytes == 2 * 1000 * 23_040
    assert one.linear_flops == 2 * 2 * 134_479_872
    assert one.attention_flops == 2 * 1000 * 4 * 30 * 9 * 64
    assert five.flops == 5 * one.flops
    assert five.intensity == pytest.approx(5 * one.intensity)


@pytest.mark.parametrize("rows", [1, 5, 17])
def test_intensity_is_the_number_of_rows_and_in_attention_three_times_it(rows):
    assert step_work(SMOLLM2, rows).intensity == rows
    assert roofline.attention_intensity(SMOLLM2, rows) == 3 * rows
    work = step_work(SMOLLM2, rows, context=77, batch=5)
    assert work.attention_flops / work.kv_bytes == 3 * rows


def test_ridges_of_the_devices():
    ridges = {name: round(device.ridge) for name, device in DEVICES.items()}
    assert ridges == {"A100": 153, "H100": 295, "H200": 206, "B200": 281, "RTX 4090": 164}
    assert H100.ridge_rows() == H100.ridge
    assert H100.ridge_rows(roofline.BYTES["int4"]) == pytest.approx(H100.ridge / 4)


def test_microseconds_that_reading_the_weights_takes():
    times = {name: step_work(SMOLLM2).seconds(d) * 1e6 for name, d in DEVICES.items()}
    want = {"A100": 132, "H100": 80, "H200": 56, "B200": 34, "RTX 4090": 267}
    assert times == pytest.approx(want, abs=0.6)


def test_the_time_is_the_longer_of_reading_and_computing():
    toy = Device("toy", bandwidth=2 * 134_479_872, flops=10 * 2 * 134_479_872)  # 1 s, ridge 10
    assert step_work(SMOLLM2, 1).seconds(toy) == 1
    assert step_work(SMOLLM2, 10).seconds(toy) == 1
    assert step_work(SMOLLM2, 20).seconds(toy) == 2
    assert step_work(SMOLLM2, 20).seconds(toy, launch=0.5) == 2.5
    assert roofline.verify_cost(SMOLLM2, toy, k=19) == 2
    assert roofline.verify_cost(SMOLLM2, toy, k=19, launch=1) == 1.5
    assert roofline.verify_cost(SMOLLM2, toy, k=4, batch=10) == 5  # no row is free
    assert roofline.crossover_batch(toy, k=4) == 2


def test_a_long_context_makes_verification_cheap_again():
    full = roofline.verify_cost(SMOLLM2, H100, k=4, batch=400)
    long = roofline.verify_cost(SMOLLM2, H100, k=4, context=4000, batch=400)
    assert full == pytest.approx(5)
    assert 1 < long < 1.5


@pytest.mark.parametrize("size", [{"rows": 0}, {"batch": 0}])
def test_no_row_and_no_sequence_are_refused(size):
    with pytest.raises(ValueError, match="needs a row and a sequence"):
        step_work(SMOLLM2, **size)


def test_torch_is_not_needed():
    code = "import sys; sys.modules['torch'] = None; import specdec_lab.study.roofline"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
