"""The figures of notebook 04, its sliders, and the checks of its exercises."""

import math

import pytest

from specdec_lab.study import exercises
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.part_04 import describe_explore, explore
from specdec_lab.study.widgets import Panel

COST = {"1": 1.0, "2": 1.1, "5": 1.3, "9": 1.6, "17": 2.4, "33": 4.0}
RUN = {"at": [0.2, 0.3, 0.4], "tokens": [1, 1, 1], "accepted": [0, 0, 0]}
DATA = {
    "04_two_costs": {"draft_cost": 0.15, "acceptances": [0.9, 0.7, 0.5, 0.3], "marked_k": 4},
    "04_verification": {
        "curves": [{"label": "here", "cost": COST}, {"label": "there", "cost": COST}],
        **{"cost": COST, "draft_cost": 0.0, "acceptances": [0.9, 0.6]},
    },
    "04_request": {
        "runs": [
            {"method": "none", **RUN},
            {"method": "ngram", **RUN, "tokens": [1, 5, 2], "accepted": [0, 4, 1]},
        ]
    },
}


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_two_costs_names_the_four_values():
    assert {"3.56", "2.41", "1.68", "1.24"} <= set(
        texts(FIGURES["04_two_costs"](DATA["04_two_costs"]))
    )


def test_verification_marks_a_finite_best_k():
    shown = [t for t in texts(FIGURES["04_verification"](DATA["04_verification"])) if "k = " in t]
    assert len(shown) == 2
    assert all(0 < int(text.removeprefix("k = ")) < 16 for text in shown)


def test_a_clock_has_a_whisker_and_a_refused_one_no_height():
    data = {"domains": ["chat", "copy"], "tau": [1.2, 3.4], "predicted": [1.1, 3.0]}
    clock = {"measured": [1.05, None], "spread": [[1.0, 1.1], [3.6, 3.8]]}
    (axes,) = FIGURES["04_by_domain"](data | clock).axes
    assert [
        list(line.get_ydata())
        for line in axes.lines
        if len(line.get_xdata()) == 2 and line.get_xdata()[0] == line.get_xdata()[1]
    ] == [[1.0, 1.1]]
    assert texts(axes.figure).count("refused") == 1
    assert [bar.get_height() for bar in axes.patches[-2:]] == [1.05, 0]
    FIGURES["04_by_domain"](data | {"measured": [1.05, 2.9]})  # a recording without a spread


def test_a_burst_is_one_step_up_in_the_time_line():
    line = FIGURES["04_request"](DATA["04_request"]).axes[0].lines
    assert [list(part.get_ydata()) for part in line if len(part.get_ydata()) == 3] == [
        [1, 2, 3],
        [1, 6, 8],
    ]


@pytest.mark.parametrize("state", [(1, 0.1, 0.5), (16, 1.0, 0.0), (8, 0.95, 0.02), (4, 0.7, 0.15)])
def test_the_sliders_draw_and_say_every_corner(state):
    data = dict(zip(("k", "acceptance", "draft_cost"), state, strict=True))
    heights = [bar.get_height() for bar in explore(data).axes[0].patches]
    assert sum(heights) == pytest.approx(1)
    assert f"k = {state[0]}, acceptance" in describe_explore(data)


def test_the_panel_says_the_speedup():
    panel = Panel(
        {"k": [1, 4], "acceptance": [0.7], "draft_cost": [0.15]},
        lambda **state: explore(state),
        lambda **state: describe_explore(state),
        start={"k": 4},
        dpi=40,
    )
    assert "2.41 times as fast if the cost is paid once" in panel.view.value
    panel.sliders["k"].value = 1
    assert "k = 1" in panel.view.value


def test_per_token_cost():
    right = lambda a, k, c: sum(a**i for i in range(k + 1)) / (1 + k * c)  # noqa: E731
    assert exercises.check_per_token_speedup(right).startswith("Right")
    said = exercises.check_per_token_speedup(lambda a, k, c: right(a, k, c / k))
    assert "every drafted token" in said
    assert "Not yet" in exercises.check_per_token_speedup(lambda a, k, c: None)


def test_break_even_of_two():
    right = lambda c: (math.sqrt(1 + 4 * c) - 1) / 2  # noqa: E731
    assert exercises.check_break_even_of_two(right).startswith("Right")
    assert "Not yet" in exercises.check_break_even_of_two(lambda c: c)
    assert "Not yet" in exercises.check_break_even_of_two(lambda c: None)


def test_acceptance_estimate():
    def right(steps):
        accepted = sum(a for _, a in steps)
        return accepted / (accepted + sum(a < d for d, a in steps))

    assert exercises.check_acceptance_estimate(right).startswith("Right")
    wrong = exercises.check_acceptance_estimate(
        lambda steps: sum(a for _, a in steps) / sum(d for d, _ in steps)
    )
    assert "never judged" in wrong
    every_step = exercises.check_acceptance_estimate(
        lambda steps: sum(a for _, a in steps) / (sum(a for _, a in steps) + len(steps))
    )
    assert "refused nothing" in every_step
