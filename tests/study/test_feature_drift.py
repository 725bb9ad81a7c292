"""A feature head along known texts, and an EAGLE that keeps what it drafted.

pytest tests/study/test_feature_drift.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.low_bit import LowBitLinear
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle, Eagle1Head, Eagle3Head
from specdec_lab.study.feature_drift import (
    Answered,
    KeepsDrafted,
    Walk,
    batches_of,
    first_token_chances,
    walk,
    with_whole_products,
)
from specdec_lab.study.forced_drafts import acceptance_along, read_texts
from specdec_lab.study.overlap import logits_behind
from toys import random_target

TARGET = random_target(seed=3, vocab_size=8, max_context=128, dtype=torch.float32)
VOCAB = DraftVocab([0, 1, 2, 4, 5, 7], 8)
PROMPTS = [[1, 2, 3, 1, 2], [4, 4], [0, 5, 0]]
DEPTH = 3


def head_of(head_class, seed=0):
    head = head_class.for_target(TARGET, VOCAB)
    head.initialise(TARGET, torch.Generator().manual_seed(seed))
    return head


def answered():
    answers = generate(TARGET, PROMPTS, max_new_tokens=17).tokens
    texts = [Answered(p, a) for p, a in zip(PROMPTS, answers, strict=True)]
    return answers, texts


@pytest.mark.parametrize(("version", "head_class"), [(1, Eagle1Head), (3, Eagle3Head)])
def test_a_walk_accepts_what_the_drafter_would_have_accepted(version, head_class):
    head, (answers, texts) = head_of(head_class), answered()
    batches = batches_of(TARGET, texts, head.hidden_layers, VOCAB)
    walked = walk(head, VOCAB, batches, DEPTH)
    drafter = with_whole_products(Eagle(TARGET, version, head, vocab=VOCAB))
    known = read_texts(TARGET, PROMPTS, answers, head.hidden_layers)
    along = acceptance_along(drafter, known, DEPTH).chances.cumprod(2)  # (B, T, D)
    real = torch.cat([along[row, : len(answer)] for row, answer in enumerate(answers)]).T
    judged = walked.judged
    assert judged.sum(1).tolist() == [sum(len(a) - d for a in answers) for d in range(DEPTH)]
    assert torch.equal(walked.accepted[judged], real[judged].bool())
    assert walked.accepted.any()


def test_the_numbers_of_a_walk_by_hand():
    yes = torch.tensor([[True, True, True], [True, True, False]])
    walked = Walk(
        judged=yes,
        reached=torch.tensor([[True, True, True], [True, False, False]]),
        agreed=torch.tensor([[True, False, False], [True, True, True]]),
        confidence=torch.tensor([[0.9, 0.1, 0.3], [0.5, 0.5, 0.5]]),
        error=torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 9.0]]),
        size=torch.tensor([[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]),
    )
    assert walked.alpha == pytest.approx([1 / 3, 1])
    assert walked.alpha_where_known(2) == pytest.approx([1 / 3])
    assert walked.tau == pytest.approx(1 + 1 / 3 + 1 / 3)
    assert walked.agreement == pytest.approx([1 / 3, 1])
    assert walked.feature_error == pytest.approx([0.5, 0.5])
    low, high = walked.calibration([0], bins=2)
    assert low == {"confidence": pytest.approx(0.2), "accepted": 0, "num": 2}
    assert high == {"confidence": pytest.approx(0.9), "accepted": 1, "num": 1}
    assert walked.calibration([1])[0]["num"] == 1


def test_the_first_feature_is_the_one_that_is_predicted():
    """Without a branch, and with W = [0 | I], EAGLE-1 predicts that nothing changes."""
    head, (_, texts) = head_of(Eagle1Head), answered()
    for weight in (head.attention.output.weight, head.mlp.down.weight, head.mix.weight):
        weight.data.zero_()
    head.mix.weight.data[:, TARGET.hidden_size :] = torch.eye(TARGET.hidden_size)
    (batch,) = batches_of(TARGET, texts, head.hidden_layers, VOCAB)
    rows, places = batch.anchors()
    states = batch.hidden[TARGET.num_layers]
    apart = (states[rows, places + 1] - states[rows, places]).square().mean(-1)
    walked = walk(head, VOCAB, [batch], 2)
    torch.testing.assert_close(walked.error[0], apart)
    torch.testing.assert_close(walked.size[0], states[rows, places + 1].square().mean(-1))


def test_chances_of_the_first_token_are_those_of_whole_laws():
    head, (_, texts) = head_of(Eagle3Head), answered()
    layers = {*head.hidden_layers, TARGET.num_layers}
    batches = batches_of(TARGET, texts[:1], layers, VOCAB)
    found = first_token_chances(TARGET, head, VOCAB, batches, [0.5, 1.0])
    text = [*texts[0].prompt, *texts[0].answer]
    p = (logits_behind(TARGET, text, len(texts[0].answer) + 1)[:-1] / 0.5).softmax(-1)
    walked = walk(head, VOCAB, batches, 1)
    assert found["greedy"][0] <= p.max(-1).values.mean() + 1e-6
    assert all(0 < g < 1 and 0 < s < 1 for g, s in zip(*found.values(), strict=True))
    cold = first_token_chances(TARGET, head, VOCAB, batches, [1e-3])
    assert cold["greedy"][0] == pytest.approx(walked.alpha[0], abs=1e-3)


class Widths(Eagle3Head):
    """Remembers how many pairs each forward read."""

    def forward(self, features, tokens, cache, seen=None):
        self.widths.append(tokens.shape[1])
        return super().forward(features, tokens, cache, seen)


def run(kind, k):
    head = head_of(Widths)
    head.widths = widths = []
    drafter = kind(TARGET, 3, head, vocab=VOCAB)
    drafter.head.widths = widths
    done = generate(TARGET, PROMPTS[:1], drafter, k=k, max_new_tokens=40)
    return done, [width for width in widths[1:] if width > 1]


def test_kept_drafts_are_not_read_again_and_the_text_is_the_same():
    kept, again = run(KeepsDrafted, 3)
    true, read = run(Eagle, 3)
    assert kept.tokens == true.tokens
    assert max(read, default=0) > 2  # all tokens that came new
    assert set(again) <= {2}  # the last drafted one, that was never read, and the pending one


def test_with_one_drafted_token_there_is_nothing_to_keep():
    kept, true = run(KeepsDrafted, 1), run(Eagle, 1)
    assert [s.drafted for s in kept[0].trace.steps] == [s.drafted for s in true[0].trace.steps]


def test_a_sampled_text_does_not_depend_on_what_was_kept():
    how = {"sampling": Sampling(temperature=1.0), "seed": 5, "max_new_tokens": 12}
    head = head_of(Eagle3Head)
    drafter = KeepsDrafted(TARGET, 3, head, drafting="greedy", vocab=VOCAB)
    drafted = generate(TARGET, PROMPTS, drafter, k=3, **how)
    assert drafted.tokens == generate(TARGET, PROMPTS, **how).tokens


def test_whole_products_say_what_the_head_says():
    head = head_of(Eagle3Head)
    drafter = with_whole_products(Eagle(TARGET, 3, head, vocab=VOCAB))
    assert not any(isinstance(module, LowBitLinear) for module in drafter.head.modules())
    states = torch.randn(2, TARGET.hidden_size, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drafter.head.logits(states), head.logits(states).detach())
