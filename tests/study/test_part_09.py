"""The figures of notebook 09, and the checks of its exercises."""

from matplotlib.collections import LineCollection

from made_speeds import made_speeds
from specdec_lab.study.exercises import (
    check_enough_tau,
    check_rows_of_a_step,
    check_second_token,
)
from specdec_lab.study.figures import FIGURES
from specdec_lab.training.pard_method import drop_tokens


def spread(median):
    return {"median": median, "low": median - 1, "high": median + 2}


DATA = {
    "09_cost": {
        "k": [1, 4],
        "draft_model": [spread(5), spread(20)],
        "pard": [spread(6), spread(7.5)],
        "plain": spread(30),
    },
    "09_dropped": {"kept": [[1, 1], [1, 0], [0, 0], [1, 0]]},
    "09_by_depth": {
        "draft_model": [0.5, 0.5, None],
        "pard": [0.5, 0.2, None],
        "pard_anywhere": [0.5, 0.2, 0.1],
        "num_trained": 2,
    },
    "09_speed": made_speeds("one by one, k = 2", "PARD, k = 4", domains=("chat", "json")),
}


def test_titles_say_what_was_measured():
    (cost,) = FIGURES["09_cost"](DATA["09_cost"]).axes
    assert "4.0 times" in cost.get_title(loc="left")
    assert "1.2" in cost.get_title(loc="left")
    assert (
        "1.00 masks a token instead of 2"
        in FIGURES["09_dropped"](DATA["09_dropped"]).get_suptitle()
    )
    (speed,) = FIGURES["09_speed"](DATA["09_speed"]).axes
    assert [bar.get_width() for bar in speed.patches] == [2, 1.9, 2, 1.9]


def test_the_cost_of_a_draft_has_whiskers():
    (axes,) = FIGURES["09_cost"](DATA["09_cost"]).axes
    whiskers = [s.get_segments() for s in axes.collections if isinstance(s, LineCollection)]
    assert [float(one[-1][1][1]) for one in whiskers] == [22, 9.5]  # the highest round, k = 4


def test_a_depth_nobody_reached_is_left_out():
    (axes,) = FIGURES["09_by_depth"](DATA["09_by_depth"]).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 2, 3]
    assert "not trained" in [text.get_text() for text in axes.texts]


def test_the_picture_of_cod_is_of_what_training_drops():
    kept = drop_tokens(24, 5, seed=0)
    title = FIGURES["09_dropped"]({"kept": kept.long().tolist()}).get_suptitle()
    assert title.startswith(f"{float(kept.sum()) / 24:.2f} masks a token")


def test_exercise_1_wants_committed_tokens_and_masks():
    assert check_rows_of_a_step(lambda k, accepted: accepted + k).startswith("Right")
    assert "forgotten" in check_rows_of_a_step(lambda k, accepted: k)
    assert check_rows_of_a_step(lambda k, accepted: None).startswith("Not yet")


def test_exercise_2_wants_the_overlap_behind_each_first_word():
    assert check_second_token(1.0, 0.58).startswith("Right")
    assert "has read New" in check_second_token(0.7, 0.58)
    assert "sum min(p, q)" in check_second_token(1.0, 0.7)
    assert check_second_token(None, 0.58).startswith("Not yet")


def test_exercise_3_wants_equal_speed():
    assert check_enough_tau(1.77).startswith("Right")
    assert "ratios" in check_enough_tau(2.2)
    assert check_enough_tau(None).startswith("Not yet")
