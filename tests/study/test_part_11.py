"""The figures of notebook 11, those that compare drafters, and the checks of its exercises."""

import pytest
from matplotlib.colors import to_hex

from made_speeds import made_speeds
from specdec_lab.study.exercises import (
    check_price_of_a_step,
    check_reads_and_guesses,
    check_step_weights,
)
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.style import METHODS

HEAD = {"state": "h2", "token": None, "module": "head 2", "guess": "t4", "made": []}
CHAIN = {"state": "h2'", "token": "t4", "module": "M", "guess": "t5", "made": ["state", "token"]}
LINE = {"method": "mtp", "label": "unrolled", "alpha": [0.5, 0.4, None]}
DATA = {
    "11_alignment": {
        "panels": [
            {"title": "independent", "steps": [HEAD, HEAD]},
            {"title": "a chain", "steps": [HEAD | {"token": "t3"}, CHAIN]},
        ]
    },
    "11_trained_together": {
        "rows": [
            {"label": "added later", "first": 1.0, "second": 0.52},
            {"label": "together", "first": 1.0, "second": 0.98},
        ]
    },
    "11_unrolled": {
        "title": "a finding",
        "share": "agreement",
        "lines": [LINE, LINE | {"label": "one step", "alpha": [0.5, 0.1, 0.0], "dash": ":"}],
    },
    "11_by_depth": {
        "method": "mtp",
        "domains": [
            {"domain": "chat", "alpha": [0.5, 0.4, None], "tau": 1.7},
            {"domain": "code", "alpha": [0.6, 0.5, 0.5], "tau": 2.0},
        ],
    },
    "11_temperature": {
        "method": "mtp",
        "temperatures": [0.5, 1.0],
        "greedy": [0.5, 0.3],
        "sampled": [0.52, 0.4],
    },
    "11_speed": made_speeds("k = 1", "k = 2", domains=("chat", "json"), method="mtp"),
    "11_against": {
        "title": "a finding",
        "lines": [LINE, {"method": "ngram", "label": "n-gram", "alpha": [None, None, None]}],
    },
}


def test_a_head_that_reads_no_token_has_no_box_for_one():
    independent, chain = FIGURES["11_alignment"](DATA["11_alignment"]).axes
    assert "t3" not in {text.get_text() for text in independent.texts}
    assert "t3" in {text.get_text() for text in chain.texts}
    assert len(independent.patches) == 6  # state, head and guess of two heads
    assert len(chain.patches) == 8


def test_what_the_draft_made_itself_has_another_colour():
    _, chain = FIGURES["11_alignment"](DATA["11_alignment"]).axes
    true_token, true_state = (box.get_facecolor() for box in chain.patches[:2])
    own_token, own_state = (box.get_facecolor() for box in chain.patches[4:6])
    assert true_token == true_state != own_token == own_state


def test_a_depth_nobody_reached_is_left_out():
    (axes,) = FIGURES["11_unrolled"](DATA["11_unrolled"]).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 3]
    assert [line.get_linestyle() for line in axes.lines] == ["-", ":"]
    assert axes.get_ylabel() == "agreement"
    (axes,) = FIGURES["11_against"](DATA["11_against"]).axes
    assert len(axes.lines) == 1


def test_the_bars_say_their_numbers():
    figure = FIGURES["11_trained_together"](DATA["11_trained_together"])
    assert "0.52 for a head added later, 0.98 trained together" in figure.get_suptitle()
    assert [text.get_text()[:4] for text in figure.axes[0].texts] == [
        "1.00",
        "0.52",
        "1.00",
        "0.98",
    ]


def test_names_of_lines_that_end_together_stand_apart():
    lines = [LINE, LINE | {"label": "another", "alpha": [0.5, 0.4, 0.4]}]
    (axes,) = FIGURES["11_unrolled"]({"title": "a finding", "lines": lines}).axes
    low, high = sorted(text.xy[1] for text in axes.texts)
    assert high - low > 0.05 * axes.get_ylim()[1]


@pytest.mark.parametrize("slug", ["11_by_depth", "11_temperature"])
def test_pictures_of_notebook_10_have_the_colour_of_the_method(slug):
    (axes,) = FIGURES[slug](DATA[slug]).axes
    assert {line.get_color() for line in axes.lines} == {METHODS["mtp"].color}


def test_the_longest_draft_has_the_full_colour_of_the_method():
    (axes,) = FIGURES["11_speed"](DATA["11_speed"]).axes
    shades = [to_hex(bar.get_facecolor()) for bar in axes.patches[:2]]
    assert shades[1] == METHODS["mtp"].color != shades[0]


def test_exercise_1_wants_the_shift():
    assert check_reads_and_guesses(lambda i, step: (i + 1 + step, i + 2 + step)).startswith("Right")
    assert "pending" in check_reads_and_guesses(lambda i, step: (i + step, i + 1 + step))
    assert check_reads_and_guesses(lambda i, step: None).startswith("Not yet")


def test_exercise_2_wants_weights_that_add_up():
    assert check_step_weights([8 / 15, 4 / 15, 2 / 15, 1 / 15]).startswith("Right")
    assert "sum" in check_step_weights([1, 0.5, 0.25, 0.125])
    assert "half" in check_step_weights([0.25] * 4)
    assert "four" in check_step_weights([1.0])
    assert check_step_weights(None).startswith("Not yet")


def test_exercise_3_wants_tau_over_the_speed_up():
    assert check_price_of_a_step(1.85 / 1.8).startswith("Right")
    assert "tau" in check_price_of_a_step(1.8 / 1.85)
    assert check_price_of_a_step(None).startswith("Not yet")
