"""The bigram proposer draws from the law that it hands over."""

import pytest
import torch

from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.study.bigram_law import BigramLaw


def test_the_bigram_law_is_what_followed_and_a_little_of_everything():
    text = [[0, 1, 0, 1, 0, 2, 9, 9], [2, 0, 3, 0, 0, 0, 0, 0]]  # padding must not count
    context = Context(torch.tensor(text), torch.tensor([6, 3]), torch.tensor([2, 2]))
    proposer = BigramLaw(10, smoothing=0.3)
    law = proposer._law(context, torch.tensor([0, 0]))
    assert law[0].tolist()[:3] == pytest.approx([0.15 / 3.3, 2.1 / 3.3, 1.05 / 3.3])
    assert law[1].tolist()[:4] == pytest.approx([0.1 / 1.3, 0, 0.1 / 1.3, 1.1 / 1.3])
    draft = proposer.propose(context, 3, Sampling(), CounterRandomness([1, 2]))
    assert draft.tokens.shape == (2, 3)
    assert draft.probs.shape == (2, 3, 10)
    assert draft.probs.gather(2, draft.tokens[..., None]).min() > 0
    assert draft.probs.sum(-1).tolist() == [pytest.approx([1.0] * 3)] * 2


def test_the_bigram_law_needs_no_host_read():
    on_meta = [torch.zeros(2, 8, dtype=torch.long, device="meta")]
    on_meta += [torch.zeros(2, dtype=torch.long, device="meta")] * 2
    chance = CounterRandomness([1, 2], "meta")
    assert BigramLaw(10).propose(Context(*on_meta), 3, Sampling(), chance).tokens.shape == (2, 3)
