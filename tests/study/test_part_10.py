"""The figures of notebook 10, and the checks of its exercises."""

from made_speeds import made_speeds
from specdec_lab.study.exercises import check_blind_head, check_state_share
from specdec_lab.study.figures import FIGURES

DATA = {
    "10_knowing": {"tokens": 3000, "curves": {"reads": [0.3, 0.4], "blind": [0.3, 0.2]}},
    "10_by_depth": {
        "domains": [
            {"domain": "chat", "alpha": [0.3, 0.4, None], "tau": 1.4},
            {"domain": "code", "alpha": [0.4, 0.5, 0.5], "tau": 1.7},
        ]
    },
    "10_temperature": {"temperatures": [0.1, 1.0], "greedy": [0.4, 0.2], "sampled": [0.4, 0.3]},
    "10_speed": made_speeds("k = 1", "k = 2", domains=("chat", "code")),
}


def test_titles_say_the_numbers_that_are_drawn():
    (axes,) = FIGURES["10_temperature"](DATA["10_temperature"]).axes
    assert "+0.00" in axes.get_title(loc="left")
    assert "+0.10" in axes.get_title(loc="left")
    (axes,) = FIGURES["10_knowing"](DATA["10_knowing"]).axes
    assert "0.40 informed, 0.20 blind" in axes.get_title(loc="left")


def test_a_depth_that_was_never_judged_is_not_drawn():
    (axes,) = FIGURES["10_by_depth"](DATA["10_by_depth"]).axes
    chat = axes.lines[0]
    assert list(chat.get_xdata()) == [1, 2]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["chat (tau 1.40)", "code (tau 1.70)"]


def test_exercise_1_wants_the_share_that_is_left():
    assert check_state_share(lambda n, i: 0.5 ** (i / n)).startswith("Right")
    assert "w_s²" in check_state_share(lambda n, i: 0.5 ** (0.5 * i / n))
    assert check_state_share(lambda n, i: None).startswith("Not yet")


def blind(pairs):
    second = [sum(column) for column in zip(*pairs, strict=True)]
    return sum(min(p, sum(row) * second[b]) for row in pairs for b, p in enumerate(row))


def test_exercise_2_wants_what_a_blind_head_loses():
    assert check_blind_head(lambda pairs: (blind(pairs), 1.0)).startswith("Right")
    assert "add up min" in check_blind_head(lambda pairs: (0.5, 1.0))
    assert "q = p" in check_blind_head(lambda pairs: (blind(pairs), 0.9))
    assert check_blind_head(lambda pairs: None).startswith("Not yet")
