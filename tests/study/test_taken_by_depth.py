"""Guesses at every place agree with decoding, and rare ones are not told."""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study.forced_drafts import Acceptance, KnownTexts, read_texts
from specdec_lab.study.taken_by_depth import (
    LEAST_REACHED,
    _by_depth,
    taken_along,
    taken_by_depth,
)
from toys import random_target

PROMPTS = [[3, 4, 5], [9, 1]]


@pytest.fixture(scope="module")
def target():
    return random_target()


def test_the_target_as_its_own_draft_is_always_right(target):
    found = taken_by_depth(target, DraftModel(target, target), PROMPTS, k=3, max_new_tokens=12)
    assert found.alpha == [1.0, 1.0, 1.0]
    assert found.reached == [24, 22, 20]  # a deep guess has no token to be judged by at the end
    assert (
        found.tau
        == generate(target, PROMPTS, DraftModel(target, target), k=3, max_new_tokens=12).trace.tau
    )


def test_a_copying_draft_is_judged_at_every_place(target):
    found = taken_by_depth(target, NGram(), PROMPTS, k=2, max_new_tokens=12)
    assert found.reached[0] == 24
    assert found.reached[1] <= round(found.alpha[0] * 24)


@pytest.mark.parametrize("make", [lambda target: DraftModel(target, target), lambda _: NGram()])
def test_known_answers_say_the_same_without_decoding(target, make):
    answers = generate(target, PROMPTS, max_new_tokens=12).tokens
    found = taken_along(make(target), read_texts(target, PROMPTS, answers), 2, target.eos_ids)
    decoded = taken_by_depth(target, make(target), PROMPTS, k=2, max_new_tokens=12)
    assert (found.alpha, found.reached) == (decoded.alpha, decoded.reached)
    assert found.tau == pytest.approx(decoded.tau)


def test_a_guess_counts_only_where_those_before_it_were_right_and_often_enough():
    chances = torch.zeros(1, 20, 2, dtype=torch.float64)
    chances[0, :12, 0] = 1
    chances[0, :3, 1] = 1
    chances[0, 15, 1] = 1  # the first guess was wrong there
    lengths = torch.tensor([21])
    texts = KnownTexts(torch.zeros(1, 21, dtype=torch.long), torch.tensor([1]), lengths)
    drafted = torch.full((1, 20), 2)
    alpha, reached = _by_depth(Acceptance(chances, drafted), texts)
    assert reached == [20, 12]
    assert alpha == [12 / 20, 3 / 12]
    chances[0, LEAST_REACHED - 1 :, 0] = 0
    alpha, reached = _by_depth(Acceptance(chances, drafted), texts)
    assert (alpha[1], reached[1]) == (None, LEAST_REACHED - 1)
