"""Enumerated laws of one step: known cases, agreement with the loop's tests, and closed forms."""

import pytest
import torch

from specdec_lab.study.broken_rules import BROKEN_RULES, NEED_ARGMAX_DRAFT
from specdec_lab.study.exact_laws import (
    completed,
    first_token_law,
    sequence_law,
    step_law,
    tokens_per_step,
    total_variation,
    toy_law,
)
from specdec_lab.study.typical_acceptance import TypicalAcceptance

TARGET, DRAFT = [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
@pytest.mark.parametrize("seed", [1, 6])
def test_right_rules_have_the_targets_law(rule, seed):
    target_law, draft_law = toy_law(seed), toy_law(seed + 100)
    whole = completed(step_law(rule, target_law, draft_law, k=2), target_law, 3)
    assert total_variation(whole, sequence_law(target_law, 3)) < 1e-12


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_one_hot_drafts_too(rule):
    law = first_token_law(rule, TARGET, DRAFT, argmax=True, tell_law=False)
    assert law == pytest.approx(TARGET, abs=1e-12)


def test_07_a_fresh_draw_after_a_mismatch_is_biased():
    law = first_token_law(BROKEN_RULES["fresh_draw_after_mismatch"], TARGET, DRAFT)
    assert law == pytest.approx([0.54, 0.36, 0.10], abs=1e-12)


def test_correction_from_the_target_adds_p_to_what_was_accepted():
    law = first_token_law(BROKEN_RULES["correction_from_target"], TARGET, DRAFT)
    both = [min(p, q) for p, q in zip(TARGET, DRAFT, strict=True)]
    want = [m + (1 - sum(both)) * p for m, p in zip(both, TARGET, strict=True)]
    assert law == pytest.approx(want, abs=1e-12)


def test_01_soft_q_for_an_argmax_draft():
    law = first_token_law(
        BROKEN_RULES["soft_q_for_argmax"], [0.5, 0.5], [0.9, 0.1], argmax=True
    )  # fmt: skip
    assert law == pytest.approx([5 / 9, 4 / 9], abs=1e-12)


def test_the_pair_of_the_figure_shows_every_broken_rule():
    target_law, draft_law = toy_law(6), toy_law(106)
    right = sequence_law(target_law, 3)
    for name, rule in BROKEN_RULES.items():
        step = step_law(rule, target_law, draft_law, k=2, argmax=name in NEED_ARGMAX_DRAFT)
        apart = total_variation(completed(step, target_law, 3), right)
        assert (apart < 1e-12) == (name == "bonus_dropped"), name


def test_tokens_per_step_are_what_theory_says():
    both = sum(map(min, TARGET, DRAFT))
    step = step_law("reject", lambda tokens: TARGET, lambda tokens: DRAFT, k=2)
    assert tokens_per_step(step) == pytest.approx(1 + both + both**2, abs=1e-12)


def test_total_variation_of_vectors_and_mappings():
    assert total_variation([1.0, 0.0], [0.0, 1.0]) == 1
    assert total_variation(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25])) == 0.25
    assert total_variation({"a": 1.0}, {"b": 1.0}) == 1


def test_toy_laws_depend_on_seed_and_text_alone():
    assert toy_law(1)((0, 2)) == toy_law(1)((0, 2))
    assert toy_law(1)((0, 2)) != toy_law(1)((2, 0))
    assert toy_law(1)((0,)) != toy_law(2)((0,))
    assert sum(toy_law(3)((0,) * 9)) == pytest.approx(1)


def test_typical_acceptance_is_lossy_and_its_closed_form_is_its_law():
    rule = TypicalAcceptance()
    assert rule.lossless is False
    law = first_token_law(rule, TARGET, DRAFT)
    vectors = (torch.tensor(law, dtype=torch.float64) for law in (TARGET, DRAFT))
    closed = rule.emitted_law(*vectors)
    assert law == pytest.approx(closed.tolist(), abs=1e-12)
    assert total_variation(law, TARGET) > 0.1
    never = TypicalAcceptance(epsilon=100, delta=100)  # nothing is typical: plain decoding
    assert first_token_law(never, TARGET, DRAFT) == pytest.approx(TARGET, abs=1e-12)


def test_typical_acceptance_takes_the_longest_typical_prefix():
    target_law = lambda tokens: [0.9, 0.05, 0.05]  # noqa: E731
    step = step_law(TypicalAcceptance(), target_law, lambda tokens: [0.0, 0.0, 1.0], k=2)
    assert step == pytest.approx({(0,): 0.9, (1,): 0.05, (2,): 0.05})
    step = step_law(TypicalAcceptance(), target_law, lambda tokens: [1.0, 0.0, 0.0], k=2)
    assert set(step) == {(0, 0, 0), (0, 0, 1), (0, 0, 2)}
