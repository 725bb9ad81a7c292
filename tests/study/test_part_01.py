"""The figures of notebook 01, and the checks of its exercises."""

import math
from types import SimpleNamespace

import pytest

from specdec_lab.study.exercises import check_kv_bytes, check_ridge_rows, check_step_time
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.part_01 import describe_row_cost, describe_step, step_data

ARCH = SimpleNamespace(
    **{"vocab_size": 49_152, "hidden_size": 576, "num_layers": 30, "num_heads": 9},
    **{"num_kv_heads": 3, "head_dim": 64, "mlp_size": 1_536},
)
ROOF = {
    **{"device": "x", "bandwidth": 2e12, "flops": 4e14, "unit": [1e12, "TFLOP"], "title": "Roof"},
    "points": [{"rows": 1, "intensity": 1.0}, {"rows": 500, "intensity": 500, "reached": 1e14}],
}
COST = {
    **{"rows": [1, 5, 33], "read_seconds": 0.02, "weights": 1e8, "flops": 1e11},
    "seconds": {"stock": [0.03, 0.1, 0.2], "packed": [0.03, 0.04, 0.1], "bf16": [0.01, 0.03, 0.3]},
    "cost": {"stock": [1, 3.3, 6.7], "packed": [1, 1.3, 3.3], "bf16": [1, 3, 30]},
}
BYTES = {
    "contexts": [100, 2000],
    "megabytes": {"attention": [5, 5], "mlp": [9, 9], "head": [4, 4], "kv": [1, 20]},
}


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_bars_add_up():
    axes = FIGURES["01_bytes"](BYTES).axes[0]
    ends = [
        max(p.get_x() + p.get_width() for p in bars) for bars in zip(*axes.containers, strict=True)
    ]
    assert ends == [19, 38]


def test_a_point_lies_on_the_roof_unless_it_reached_less():
    figure = FIGURES["01_roofline"](ROOF)
    points = [line.get_xydata()[0].tolist() for line in figure.axes[0].lines[2:]]
    assert points == [[1, 2], [500, 100]]
    assert {"1 row", "500 rows", " ridge 200"} <= set(texts(figure))


def test_the_cost_is_described_with_its_numbers():
    said = describe_row_cost(COST)
    assert "stock, float32 3.30" in said
    assert "prepacked, float32 1.30" in said


def test_a_step_of_one_sequence_is_memory_bound_on_a_gpu():
    data = step_data(ARCH, "H100", batch=1)
    assert data["cost"] == pytest.approx([1] * len(data["rows"]))
    assert "memory-bound up to 295 rows a sequence" in describe_step(data)


def test_a_full_batch_has_no_free_row():
    data = step_data(ARCH, "H100", batch=512, context=0)
    assert data["cost"] == pytest.approx(data["rows"])
    assert "compute-bound from the first row" in describe_step(data)


def test_the_ridge_is_drawn_where_it_is_in_sight():
    shown = texts(FIGURES["01_explore"](step_data(ARCH, batch=64)))
    assert " ridge" in shown
    assert " ridge" not in texts(FIGURES["01_explore"](step_data(ARCH, batch=1)))


def test_kv_bytes():
    assert check_kv_bytes(lambda *numbers: 2 * math.prod(numbers)).startswith("Right")
    assert "keys AND values" in check_kv_bytes(lambda *numbers: math.prod(numbers))
    assert "should be" in check_kv_bytes(lambda *numbers: 1)
    assert "return a number" in check_kv_bytes(lambda *numbers: None)


def test_ridge_rows():
    assert check_ridge_rows(lambda f, b, size: f / b * size / 2).startswith("Right")
    assert "comes earlier" in check_ridge_rows(lambda f, b, size: f / b)
    assert "n rows" in check_ridge_rows(lambda f, b, size: b / f)
    assert "return a number" in check_ridge_rows(lambda f, b, size: None)


def test_step_time():
    assert check_step_time(lambda rows: max(20, 4 * rows)).startswith("Right")
    assert "at once" in check_step_time(lambda rows: 20 + 4 * rows)
    assert "should be 24" in check_step_time(lambda rows: 20)
    assert "return a number" in check_step_time(lambda rows: None)
