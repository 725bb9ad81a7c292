"""The figures of notebook 10, and the checks of its exercises."""

import pytest

from figure_checks import check_figure, speed_data
from specdec_lab.study.exercises import check_blind_head, check_state_share
from specdec_lab.study.figures import FIGURES

ENTRY = {"step": 0, "loss": 4.0, "alpha": [0.1, 0.2], "judged": [90, 30], "tau": 1.1}
RUN = {
    "method": "mlp_speculator",
    "tokens": 1000,
    "steps": 4,
    "minutes": 1.5,
    "curve": [
        {"step": 1, "places": 500, "loss": 3.0, "alpha": [0.1], "tau": 1.1, "judged": [90]},
        {"step": 2, "places": 900, "loss": 2.0, "alpha": [0.2], "tau": 1.2, "judged": [90]},
    ],
}
DATA = {
    "10_pairs": {
        "first": ["New", "Los"],
        "second": ["York", "Angeles"],
        "laws": {
            "target": [[0.6, 0.0], [0.0, 0.4]],
            "blind": [[0.36, 0.24], [0.24, 0.16]],
            "knowing": [[0.6, 0.0], [0.0, 0.4]],
        },
        "accepted": {"target": None, "blind": 0.52, "knowing": 1.0},
    },
    "10_live": {
        "method": "mlp_speculator",
        "tokens": 3000,
        "cap": 0.97,
        "curve": [ENTRY, ENTRY | {"step": 20, "loss": 2.0, "alpha": [0.3, 0.4]}],
    },
    "10_knowing": {"tokens": 3000, "curves": {"reads": [0.3, 0.4], "blind": [0.3, 0.2]}},
    "10_by_depth": {
        "domains": [
            {"domain": "chat", "alpha": [0.3, 0.4, None], "tau": 1.4},
            {"domain": "code", "alpha": [0.4, 0.5, 0.5], "tau": 1.7},
        ]
    },
    "10_vocabulary": {
        "sizes": [1024, 8192],
        "curves": {"chat": [0.8, 0.97], "chat, Turkish": [0.5, 0.9]},
        "shipped": 8192,
    },
    "10_temperature": {"temperatures": [0.1, 1.0], "greedy": [0.4, 0.2], "sampled": [0.4, 0.3]},
    "10_speed": speed_data("k = 1", "k = 2", domains=("chat", "code")),
    "10_training": {"milestones": [], "shipped": [RUN]},
    "10_learning": {"milestones": [RUN, RUN | {"tokens": 3000}], "shipped": []},
}


def test_every_figure_of_the_part_is_tested_here():
    assert {slug for slug in FIGURES if slug.startswith("10_")} == set(DATA)


@pytest.mark.parametrize("slug", DATA)
def test_a_figure_is_drawn_and_has_a_finding_as_title(slug):
    check_figure(FIGURES[slug](DATA[slug]))


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
