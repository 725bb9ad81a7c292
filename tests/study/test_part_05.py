"""The figures of notebook 05, and the checks of its exercises."""

from specdec_lab.study import exercises
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.part_05 import describe_by_domain

GROUP = {
    **{"domain": "code_edit", "language": "en", "tau": 3.1, "tau_no_loops": 3.1},
    **{"rep4": 0.05, "num_loops": 0, "num_prompts": 3},
}
LOOPING = GROUP | {"domain": "chat", "language": "tr", "rep4": 0.5, "num_loops": 3}
DATA = {
    "05_by_domain": {
        "k": 4,
        "groups": [GROUP, LOOPING | {"tau_no_loops": None}, GROUP | {"tau_no_loops": 1.2}],
    },
}


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_loops_stand_apart():
    figure = FIGURES["05_by_domain"](DATA["05_by_domain"])
    assert "3 of 3" in texts(figure)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["chat, Turkish", "code edit, English", "code edit, English"]  # all loop: last


def test_the_sentence_names_k_and_both_ends():
    said = describe_by_domain(DATA["05_by_domain"])
    assert "k = 4" in said
    assert "highest code edit in English 3.10" in said
    assert "lowest code edit in English 1.20" in said


def test_exercise_first_place():
    def last(text, n, k):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n :][:k]
        return []

    def first(text, n, k):
        for start in range(len(text) - n):
            if text[start : start + n] == text[-n:]:
                return text[start + n :][:k]
        return []

    assert exercises.check_first_place(first).startswith("Right")
    assert "first" in exercises.check_first_place(last)
    assert exercises.check_first_place(lambda text, n, k: None).startswith("Not yet")
    assert exercises.check_first_place(lambda text, n, k: first(text, n, 99)).startswith("Not yet")


def test_exercise_fair_tau():
    def fair(runs):
        kept = [run for run in runs if run[2] <= 0.3]
        return sum(run[0] for run in kept) / sum(run[1] for run in kept)

    def mean(runs):
        kept = [run[0] / run[1] for run in runs if run[2] <= 0.3]
        return sum(kept) / len(kept)

    assert exercises.check_fair_tau(fair).startswith("Right")
    assert "pooled" in exercises.check_fair_tau(mean)
    assert "loop" in exercises.check_fair_tau(
        lambda runs: sum(r[0] for r in runs) / sum(r[1] for r in runs)
    )
    assert exercises.check_fair_tau(lambda runs: None).startswith("Not yet")
