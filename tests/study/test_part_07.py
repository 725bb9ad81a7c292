"""The figure of notebook 07, and the checks of its exercises."""

import torch

from specdec_lab.decoding.randomness import Lane
from specdec_lab.decoding.records import Draft
from specdec_lab.study import exercises
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.part_07 import describe_versus_ngram
from specdec_lab.study.figures.style import render

DATA = {
    "k": 8,
    "domains": [
        {"domain": "json", "ngram": 2.0, "record": 2.5, "both": 3.0},
        {"domain": "code_edit", "ngram": 3.0, "record": 1.0, "both": 3.0},
    ],
}


def test_the_figure_is_drawn_and_names_its_finding():
    figure = FIGURES["07_versus_ngram"](DATA)
    assert "3.00 instead of 2.00 on json" in figure.axes[0].get_title(loc="left")
    assert render(figure, "png", 40).startswith(b"\x89PNG")
    assert "code edit: n-gram 3.00" in describe_versus_ngram(DATA)


class Drawn:
    """Draws from one law and tells another where `honest` is False."""

    def __init__(self, honest=True):
        self.honest = honest

    def propose(self, context, k, sampling, randomness):
        law = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).expand(1, k, 3)
        place = torch.arange(k)[None]
        position = context.lengths[:, None].expand(1, k)
        told = law if self.honest else law.flip(-1)
        tokens = randomness.draw(law, position, Lane.DRAFT, place)
        return Draft(tokens, torch.full_like(context.lengths, k), probs=told)


class Last:
    def propose(self, context, k, sampling, randomness):
        tokens = context.pending[:, None].expand(-1, k)
        return Draft(tokens, torch.full_like(context.lengths, k))


def test_exercise_longer():
    def longer(one, other):
        return lambda text: max(one(text), other(text), key=len)

    assert exercises.check_longer(longer).startswith("Right")
    assert "[1, 2, 3]" in exercises.check_longer(lambda one, other: other)
    assert "first" in exercises.check_longer(lambda one, other: longer(other, one))
    assert "function" in exercises.check_longer(lambda one, other: None)


def test_exercise_law():
    assert exercises.check_law(Drawn()).startswith("Right")
    assert "0.5" in exercises.check_law(Drawn(honest=False))
    assert "probs" in exercises.check_law(Last())
    assert exercises.check_law(None).startswith("Not yet")


def test_exercise_law_wants_a_draft():
    class Wrong:
        def propose(self, context, k, sampling, randomness):
            return [1, 2]

    assert "Draft" in exercises.check_law(Wrong())
