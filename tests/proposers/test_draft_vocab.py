"""The draft vocabulary: both maps, what is kept, and what it costs.

pytest tests/proposers/test_draft_vocab.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.proposers.draft_vocab import (
    DraftVocab,
    always_kept,
    count_tokens,
    most_useful,
)
from toys import random_target

KEPT = [0, 2, 5, 7]


@pytest.fixture
def vocab():
    return DraftVocab(KEPT, 8)


class BytePairs:
    """A tokenizer of three bytes, a word, and a token that ends a message."""

    all_special_ids = (4,)

    def get_vocab(self):
        """Token to id."""
        return {"a": 0, "Ġ": 1, "<0x0A>": 2, "ab": 3, "<end>": 4, "abc": 5}


def test_17_ids_are_absolute_and_come_back_in_a_round_trip(vocab):
    """Read as offsets [0, 1, 3, 4], or left at arange, these ids would be others."""
    assert vocab.to_target(torch.arange(4)).tolist() == KEPT
    assert vocab.to_draft(torch.arange(8)).tolist() == [0, -1, 1, -1, -1, 2, -1, 3]
    assert vocab.to_draft(vocab.to_target(torch.arange(4))).tolist() == [0, 1, 2, 3]
    assert len(vocab) == 4


@given(st.sets(st.integers(0, 99), min_size=1))
@settings(max_examples=30, deadline=None)
def test_every_round_trip_is_the_identity(ids):
    vocab = DraftVocab(sorted(ids), 100)
    draft = torch.arange(len(ids))
    assert torch.equal(vocab.to_draft(vocab.to_target(draft)), draft)
    outside = torch.tensor(sorted(set(range(100)) - ids), dtype=torch.long)
    assert bool((vocab.to_draft(outside) == -1).all())


@pytest.mark.parametrize("ids", [[], [2, 1], [1, 1], [-1, 0], [0, 8]])
def test_ids_that_do_not_rise_within_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match="rising target ids from 0 to 7"):
        DraftVocab(ids, 8)


def test_the_tokens_that_come_most_often_are_kept():
    counts = count_tokens([[3, 3, 3, 1], [1, 5, 7]], 8)
    assert counts.tolist() == [0, 2, 0, 3, 0, 1, 0, 1]
    assert most_useful([counts], 3).draft_to_target.tolist() == [1, 3, 5]  # ties: the lower id
    assert most_useful([counts], 3, always=[6]).draft_to_target.tolist() == [1, 3, 6]


def test_kinds_of_text_weigh_the_same_however_much_was_counted():
    english, turkish = torch.tensor([900, 600, 0, 0]), torch.tensor([0, 0, 3, 1])
    assert most_useful([english, turkish], 2).draft_to_target.tolist() == [0, 2]


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_size_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match=r"size must be from 2 .* to 8"):
        most_useful([torch.ones(8, dtype=torch.long)], size, always=[3, 4])


def test_bytes_and_end_tokens_are_always_kept():
    assert always_kept(BytePairs(), eos_ids=[5]) == [0, 1, 2, 4, 5]


def test_coverage_is_the_share_of_argmax_and_of_mass(vocab):
    laws = torch.zeros(2, 8)
    laws[0, 2], laws[0, 3] = 0.7, 0.3  # the best token is kept
    laws[1, 1], laws[1, 5], laws[1, 6] = 0.5, 0.1, 0.4  # it is not
    argmax, mass = vocab.coverage(laws)
    assert argmax == 0.5
    assert mass == pytest.approx((0.7 + 0.1) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sliced_head_gives_the_targets_logits(dtype):
    target, vocab = random_target(dtype=dtype), DraftVocab([1, 4, 30], 32)
    head, x = vocab.head_of(target), torch.randn(5, 32, dtype=dtype)
    torch.testing.assert_close(head(x), target.model.head(x)[:, [1, 4, 30]])
    assert (head.weight.requires_grad, head.bias.requires_grad) == (False, True)


def test_the_law_over_draft_ids_is_the_law_where_nothing_else_can_be_drafted(vocab):
    """Bias and penalties are renumbered."""
    sampling = Sampling(
        temperature=0.7, presence_penalty=0.5, repetition_penalty=1.3, bias={5: 1.0, 6: 9.0}
    )
    context = Context(torch.tensor([[5, 5, 2, 1]]), torch.tensor([4]), torch.tensor([2]))
    history = history_of(sampling, context, Draft.empty(1), 8)
    logits = torch.randn(1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = logits.clone()
    alone[..., [1, 3, 4, 6]] = -torch.inf
    expected = sampling.probs(alone, history)[..., KEPT]
    own = vocab.sampling(sampling)
    assert own.bias == {2: 1.0}
    got = own.probs(logits[..., KEPT], vocab.history(history))
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_the_maps_can_be_moved(vocab):
    moved = vocab.to("meta")
    assert moved.draft_to_target.is_meta
    assert moved.to_target(torch.zeros(2, dtype=torch.long, device="meta")).shape == (2,)
    assert moved.sampling(Sampling(bias={7: 1.0})).bias == {3: 1.0}
