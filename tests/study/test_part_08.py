"""The figures of notebook 08, and the checks of its exercises."""

from made_speeds import made_speeds
from specdec_lab.study.exercises import check_break_even_tau, check_tokens_to_read
from specdec_lab.study.figures import FIGURES

COPY = {"label": "4 / 8", "agreement": 0.9, "overlap": 0.85, "megabytes": 84.0}
DATA = {
    "08_bits": {"copies": [COPY | {"label": "32 / 32", "megabytes": 538.0}, COPY]},
    "08_trained": {
        "taken": {
            "twin": [{"domain": "chat", "alpha": [0.9, 0.9], "tau": 3.0}],
            "trained": [{"domain": "chat", "alpha": [0.3, None], "tau": 1.3}],
        },
        **made_speeds("twin, k = 4", "trained, k = 2"),
    },
    "08_speed": made_speeds("twin, k = 4", domains=("chat", "code")),
}


def test_the_bars_say_their_numbers():
    left, right = FIGURES["08_bits"](DATA["08_bits"]).axes
    assert {"0.90", "0.85"} <= {text.get_text() for text in left.texts}
    assert [text.get_text() for text in right.texts] == ["538", "84"]
    with_prompt, without = FIGURES["08_speed"](DATA["08_speed"]).axes
    assert with_prompt.texts[0].get_text() == "1.50 x  (tau 2.50)"
    assert without.texts[0].get_text() == "2.00 x  (tau 2.50)"


def test_a_trained_draft_stands_beside_the_twin():
    figure = FIGURES["08_trained"](DATA["08_trained"])
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [2, 1]
    numbers = [text.get_text() for text in right.texts]
    assert numbers == ["2.00 x  (tau 2.50)", "1.90 x  (tau 2.40)"]


def test_exercise_1_wants_two_tokens_after_full_acceptance():
    assert check_tokens_to_read(lambda k, accepted: 1 + (accepted == k)).startswith("Right")
    assert "bonus" in check_tokens_to_read(lambda k, accepted: 1)
    assert "refused" in check_tokens_to_read(lambda k, accepted: 2)
    assert check_tokens_to_read(lambda k, accepted: None).startswith("Not yet")


def test_exercise_2_wants_the_cost_of_a_step():
    assert check_break_even_tau(2.3, 1.3).startswith("Right")
    assert "four" in check_break_even_tau(1.55, 1.3)
    assert "verification" in check_break_even_tau(2.3, 1.0)
    assert check_break_even_tau(None, 1.3).startswith("Not yet")
