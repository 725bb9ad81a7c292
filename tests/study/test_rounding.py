"""Rounded weights: levels, what is shared, and a rounded copy as a draft."""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.low_bit import low_bit_copy
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.study.overlap import logits_behind
from specdec_lab.study.rounding import RereadingDraft, round_to_nearest, rounded_copy
from toys import random_target

PROMPT = [3, 1, 4, 1, 5]
WARM = Sampling(temperature=0.8)


@pytest.fixture(scope="module")
def target():
    return random_target()


def test_groups_have_few_levels_and_keep_their_ends():
    weight = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    rounded = round_to_nearest(weight, bits=4, group=32)
    groups, before = rounded.unflatten(1, (2, 32)), weight.unflatten(1, (2, 32))
    for row, was in zip(groups.flatten(0, 1), before.flatten(0, 1), strict=True):
        step = (was.max() - was.min()) / 15
        assert len(((row - was.min()) / step).round().unique()) <= 16
        assert (row - was).abs().max() <= step / 2 + 1e-6
        assert row.min() == was.min()
    assert torch.allclose(round_to_nearest(weight, bits=16), weight, atol=1e-3)


def test_a_group_of_equal_weights_stays_as_it_is():
    assert torch.equal(round_to_nearest(torch.full((2, 32), 0.25)), torch.full((2, 32), 0.25))


def test_a_group_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="group"):
        round_to_nearest(torch.zeros(2, 40), group=32)


def test_a_rounded_copy_is_near_and_the_target_unharmed(target):
    before = logits_behind(target, PROMPT, 3)
    near, far = (logits_behind(rounded_copy(target, bits, 4), PROMPT, 3) for bits in (12, 3))
    assert torch.equal(logits_behind(target, PROMPT, 3), before)
    assert 0 < (near - before).abs().max() < (far - before).abs().max()


def test_a_rounded_copy_shares_tables_and_norms(target):
    copied = rounded_copy(target, group=4)
    assert copied.model.embed.weight is target.model.embed.weight
    assert copied.model.norm.weight is target.model.norm.weight
    assert (copied.vocab_size, copied.max_context) == (target.vocab_size, target.max_context)


def test_a_rounded_copy_takes_another_head_as_it_is(target):
    head = low_bit_copy(target, 8).model.head
    alone, both = (rounded_copy(target, bits=3, group=4, head=h).model for h in (head, None))
    assert alone.head is head
    assert both.head is not head
    states = [model(torch.tensor([PROMPT]))[0] for model in (alone, both)]
    assert torch.equal(*states)


def test_rereading_draft_draws_from_the_laws_that_it_tells(target):
    rows = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0]])
    lengths = torch.tensor([5, 2])
    context = Context(rows, lengths, lengths)
    draft = RereadingDraft(target).propose(context, 3, WARM, CounterRandomness([1, 2]))
    assert draft.tokens.shape == (2, 3)
    for row, length, tokens, probs in zip(rows, lengths, draft.tokens, draft.probs, strict=True):
        text = [*row[:length].tolist(), *tokens.tolist()]
        logits = logits_behind(target, text, 4)[:3]
        assert torch.allclose(WARM.probs(logits), probs.double(), atol=1e-6)


@pytest.mark.parametrize("rule", ["match", "reject"])
def test_greedy_text_is_the_targets_whatever_drafts(target, rule):
    drafter = RereadingDraft(rounded_copy(target, bits=3, group=4))
    plain = generate(target, [PROMPT, PROMPT[:2]], max_new_tokens=12)
    fast = generate(target, [PROMPT, PROMPT[:2]], drafter, k=3, verify=rule, max_new_tokens=12)
    assert fast.tokens == plain.tokens


def test_07_match_repeats_the_seeded_text_and_a_perfect_draft_is_always_accepted(target):
    options = {"sampling": WARM, "max_new_tokens": 12, "seed": 5}
    plain = generate(target, [PROMPT], **options)
    drafter = RereadingDraft(rounded_copy(target, bits=3, group=4))
    assert generate(target, [PROMPT], drafter, k=3, verify="match", **options).tokens == (
        plain.tokens
    )
    own = generate(target, [PROMPT], RereadingDraft(target), k=3, verify="reject", **options)
    assert own.trace.alpha == 1
