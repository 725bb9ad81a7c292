"""Figures of notebook 03: they draw what their numbers say, and the panel's sentence too."""

import matplotlib.colors as colors
import pytest

from specdec_lab.study import exercises
from specdec_lab.study.figures import part_03
from specdec_lab.study.widgets import Panel

P_Q = {
    "tokens": ["çay", "kahve", "all others"],
    "shown": 1.0,
    "laws": [
        {
            "temperature": 0,
            "target_probs": [1.0, 0.0, 0.0],
            "draft_probs": [1.0, 0.0, 0.0],
            "accepted": [1.0, 0.0, 0.0],
            "recovered": [0.0, 0.0, 0.0],
            "acceptance": 1.0,
        },
        {
            "temperature": 1.0,
            "target_probs": [0.6, 0.3, 0.1],
            "draft_probs": [0.2, 0.5, 0.3],
            "accepted": [0.2, 0.3, 0.1],
            "recovered": [0.4, 0.0, 0.0],
            "acceptance": 0.6,
        },
    ],
}
RULES = {
    "rules": [
        {"name": "reject", "total_variation": 1e-16, "right": True, "tokens_per_step": 1.9},
        {"name": "soft_q", "total_variation": 0.2, "right": False, "tokens_per_step": 1.5},
    ]
}


def lengths_of_bars(axes, color: str) -> list[float]:
    wanted = colors.to_rgba(color)
    return [bar.get_width() for bar in axes.patches if bar.get_facecolor() == wanted]


def test_bars_show_the_laws_and_their_halves():
    left, right = part_03.p_q_residual(P_Q).axes
    assert lengths_of_bars(left, part_03.TARGET) == [0.6, 0.3, 0.1]
    assert lengths_of_bars(left, part_03.DRAFT) == [0.2, 0.5, 0.3]
    assert lengths_of_bars(right, part_03.ACCEPTED) == [0.2, 0.3, 0.1]
    assert lengths_of_bars(right, part_03.RECOVERED) == pytest.approx([0.4, 0.0, 0.0])


def test_only_wrong_rules_have_a_bar():
    (axes,) = part_03.broken_rules(RULES).axes
    assert lengths_of_bars(axes, part_03.WRONG) == [0.2]
    assert any("0: right" in text.get_text() for text in axes.texts)


def test_the_panel_says_temperature_and_acceptance():
    panel = Panel(
        {"temperature": [0, 1.0]},
        draw=lambda temperature: part_03.p_q_residual(P_Q | {"shown": temperature}),
        describe=lambda temperature: part_03.describe_p_q(P_Q, temperature),
        start={"temperature": 1.0},
        dpi=40,
    )
    panel.redraw()
    assert "temperature = 1: a drafted token is accepted with probability 0.600" in panel.view.value
    panel.sliders["temperature"].value = 0
    panel.redraw()
    assert "temperature = 0" in panel.view.value
    assert "nothing is ever refused" in panel.view.value


def test_the_sentence_names_where_the_laws_differ():
    sentence = part_03.describe_p_q(P_Q, 1.0)
    assert "offers kahve too often (0.500 for 0.300)" in sentence
    assert sentence.endswith("recovered for çay.")


def test_checks_of_the_exercises_know_right_from_wrong():
    check = exercises.check_acceptance_and_residual
    assert check(None, None).startswith("Not yet")
    assert check(0.3, [1, 0, 0]).startswith("Not yet")
    assert check(0.7, [1, 1, 1]).startswith("Not yet")
    assert check(0.7, [0.5, 0.3, 0.2]).startswith("Not yet")
    assert check(0.7, [1, 0, 0]).startswith("Right")


def test_check_of_the_fresh_draw():
    check = exercises.check_fresh_draw_bias
    assert check(lambda p_x: None).startswith("Not yet")
    assert check(lambda p_x: p_x).startswith("Not yet")
    assert check(lambda p_x: p_x * (1 - p_x)).startswith("Right")


def test_check_of_the_lenient_law():
    def lenient(p, q, c):
        kept = [min(b, c * a) for a, b in zip(p, q, strict=True)]
        missing = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
        return [k + (1 - sum(kept)) * m / sum(missing) for k, m in zip(kept, missing, strict=True)]

    check = exercises.check_lenient_law
    assert check(lambda p, q, c: None).startswith("Not yet")
    assert check(lambda p, q, c: p).startswith("Not yet")
    assert check(lenient).startswith("Right")
