"""The figures of notebook 02, and the checks of its exercises."""

import pytest

from specdec_lab.study.exercises import check_cache_length, check_keep, check_walk
from specdec_lab.study.figures import FIGURES

STEP = {"drafted": ["a", "b"], "tokens": ["a", "c"], "kinds": ["accepted", "recovered"]}
DECISION = {
    **{"step": 0, "drafted": "a", "written": "a", "target_prob": 0.2, "draft_prob": 0.4},
    **{"low": 0.0, "high": 0.5, "coin": 0.3, "outcome": "accepted"},
}
DATA = {
    "02_one_step": {"inputs": ["x", "a", "b"], "says": ["a", "c", "d"], "num_accepted": 1},
    "02_timeline": {"steps": [STEP, {"drafted": [], "tokens": ["<|im_end|>"], "kinds": ["plain"]}]},
    "02_best_and_worst": {
        "k": 2,
        "curves": [
            {"method": "none", "label": "always wrong", "tokens": [0, 1, 2, 3]},
            {"method": "oracle", "label": "always right", "tokens": [0, 3]},
        ],
    },
    "02_coins": {"decisions": [DECISION, {**DECISION, "coin": None}]},
}


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_one_step_shows_the_first_refusal_and_no_later_judgement():
    shown = texts(FIGURES["02_one_step"](DATA["02_one_step"]))
    assert shown.count("=") == 1
    assert shown.count("≠") == 1
    assert {"c ↻", "a ✓", "b ✗"} <= set(shown)


def test_one_step_that_keeps_all_ends_in_a_bonus():
    data = {"inputs": ["x", "a", "b"], "says": ["a", "b", "d"], "num_accepted": 2}
    shown = texts(FIGURES["02_one_step"](data))
    assert shown.count("=") == 2
    assert "≠" not in shown
    assert "d +" in shown


def test_the_timeline_counts_tokens_and_forwards():
    figure = FIGURES["02_timeline"](DATA["02_timeline"])
    assert figure.axes[0].get_title(loc="left") == "3 tokens in 2 target forwards"
    assert "b ✗" in texts(figure)


def test_best_and_worst_has_both_bounds():
    axes = FIGURES["02_best_and_worst"](DATA["02_best_and_worst"]).axes[0]
    slopes = [line.get_ydata()[-1] / line.get_xdata()[-1] for line in axes.lines[:2]]
    assert slopes == pytest.approx([1, 3])


def test_only_decisions_with_a_coin_have_a_line():
    axes = FIGURES["02_coins"](DATA["02_coins"]).axes[0]
    assert len(axes.lines) == 1
    assert axes.patches[1].get_width() == 0.5


def right_walk(drafted, says):
    n = 0
    while n < len(drafted) and drafted[n] == says[n]:
        n += 1
    return [*drafted[:n], says[n]]


WRONG_WALKS = {
    "the bonus is free": lambda drafted, says: right_walk(drafted, says)[: len(drafted)] or says,
    "thrown away": lambda drafted, says: [
        *(d for d, s in zip(drafted, says, strict=False) if d == s),
        says[-1],
    ],
    "still written": lambda drafted, says: (
        right_walk(drafted, says) if drafted[:1] == says[:1] else []
    ),
}


def test_the_right_walk_is_right():
    assert check_walk(right_walk).startswith("Right")


@pytest.mark.parametrize("story", WRONG_WALKS)
def test_a_wrong_walk_is_told_what_to_look_at(story):
    said = check_walk(WRONG_WALKS[story])
    assert said.startswith("Not yet")
    assert story in said


def test_cache_length():
    assert check_cache_length(lambda n, accepted: n - 1 + sum(a + 1 for a in accepted)).startswith(
        "Right"
    )
    assert "pending" in check_cache_length(lambda n, accepted: n + sum(accepted))
    assert "one token more" in check_cache_length(lambda n, accepted: n - 1 + sum(accepted))


def test_keep():
    assert check_keep(lambda p, q, coin: coin < p / q).startswith("Right")
    assert "exactly 0" in check_keep(lambda p, q, coin: coin <= p / q)
    assert "above" in check_keep(lambda p, q, coin: True)
    assert "keep it" in check_keep(lambda p, q, coin: coin < p)
