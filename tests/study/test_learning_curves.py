"""Curves of trainings: read, put in order, and carried on with honest ends.

pytest tests/study/test_learning_curves.py
"""

import json
import math

import numpy as np
import pytest

from specdec_lab.study.figures.measured import learning
from specdec_lab.study.figures.style import render
from specdec_lab.study.learning_curves import (
    milestones,
    outlook,
    read_curves,
    tau_error,
    tau_of,
)


def entry(alpha, step=10):
    whole = {"step": step, "places": 1000 * step, "seconds": 1.0, "loss": 2.0, "alpha": alpha}
    return whole | {"tau": tau_of(alpha), "judged": [400, 100][: len(alpha)]}


def written(folder, method, tokens, alpha, **about):
    about = {"method": method, "tokens": str(tokens), "steps": "10"} | about
    whole = {"about": about, "curve": [entry([0.0] * len(alpha), 5), entry(alpha)]}
    (folder / f"{method}_{tokens}.json").write_text(json.dumps(whole))


@pytest.fixture
def runs(tmp_path):
    written(tmp_path, "mlp_speculator", 400_000, [0.4, 0.5], minutes="3.5")
    written(tmp_path, "mlp_speculator", 100_000, [0.3, 0.5])
    written(tmp_path, "eagle_3", 400_000, [0.5])
    return read_curves(tmp_path)


def test_curves_are_read_in_order_and_older_files_say_no_minutes(runs):
    assert [(r["method"], r["tokens"]) for r in runs] == [
        ("eagle_3", 400_000),
        ("mlp_speculator", 100_000),
        ("mlp_speculator", 400_000),
    ]
    assert [run["minutes"] for run in runs] == [None, None, 3.5]
    assert read_curves("data/no_such_folder") == []


def test_milestones_are_the_ends_of_the_curves(runs):
    _, found = milestones(runs)
    assert found.tokens == [100_000, 400_000]
    assert found.tau == pytest.approx([1.45, 1.6])
    assert found.alpha == [0.3, 0.4]
    assert found.alpha_error[1] == pytest.approx(math.sqrt(0.4 * 0.6 / 400))


def test_the_error_of_tau_is_that_of_random_draws():
    draw = np.random.default_rng(0)
    first, second = (draw.binomial(n, a, 20_000) / n for n, a in ((400, 0.4), (100, 0.5)))
    assert tau_error([0.4, 0.5], [400, 100]) == pytest.approx(
        np.std(1 + first + first * second), rel=0.02
    )
    assert tau_error([0.0, 0.5], [400, 100]) == 0


def test_an_outlook_goes_on_from_the_last_point():
    ahead = outlook([100, 200, 800], [1.0, 1.3, 1.5], error=0.1, at=1600)
    assert ahead.middle == pytest.approx(1.5 + 0.5 / 3)  # half a unit in three doublings
    assert ahead.low == pytest.approx(1.5 - 0.196)
    assert ahead.high == pytest.approx(1.5 + 0.3 + 0.196)
    falling = outlook([100, 200], [1.2, 1.1], error=0.0, at=400)
    assert (falling.low, falling.high) == (pytest.approx(1.0), pytest.approx(1.1))
    assert outlook([100], [1.2], 0.0, 400) is None


def test_the_figures_show_every_run_and_say_what_they_show(runs):
    data = {"milestones": runs, "shipped": runs}
    figure = learning.learning(data)
    left, _ = figure.axes
    assert left.get_legend_handles_labels()[1] == ["EAGLE-3", "MLP speculator"]
    assert len(left.collections) >= 3  # two error bars, and one outlook
    assert "tau 1.45 with 100 k, 1.60 with 400 k" in learning.describe_learning(data)
    shipped = learning.training(data)
    assert len(shipped.axes[1].lines) == 3
    assert shipped.axes[1].get_ylabel().endswith("k = 1")  # EAGLE was judged at one depth
    assert "EAGLE-3 1.50" in learning.describe_training(data)
    assert render(shipped, "svg")
    empty = {"milestones": [], "shipped": []}
    assert "No run yet" in learning.describe_learning(empty)
    assert "No run yet" in learning.describe_training(empty)
    assert learning.training(empty)


@pytest.mark.parametrize(
    ("tokens", "words"), [(246_132, "246 k"), (1_002_000, "1 M"), (1_250_000, "1.2 M")]
)
def test_tokens_in_words(tokens, words):
    assert learning.in_words(tokens) == words
