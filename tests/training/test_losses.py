"""The losses against closed forms and finite differences.

pytest tests/training/test_losses.py
"""

import math

import pytest
import torch

from specdec_lab.training.losses import (
    LOSSES,
    TopLaw,
    acceptance,
    cross_entropy,
    kl,
    overlap,
)


def logits_of(*probs: float) -> torch.Tensor:
    """Logits of a law, moved by a constant that no loss may see."""
    return torch.tensor(probs, dtype=torch.float64).log() + 3.0


def law(ids: list[int], probs: list[float]) -> TopLaw:
    return TopLaw(torch.tensor(ids), torch.tensor(probs, dtype=torch.float64))


HALVES = law([1, 0], [0.5, 0.25])  # the rest, 0.25, is not listed


def test_kl_in_closed_form():
    expected = 0.5 * math.log(0.5 / 0.2) + 0.25 * math.log(0.25 / 0.7)
    assert kl(logits_of(0.7, 0.2, 0.1), HALVES).item() == pytest.approx(expected, abs=1e-12)
    assert kl(logits_of(0.25, 0.5, 0.25), HALVES).item() == pytest.approx(0, abs=1e-12)


def test_kl_over_all_tokens_is_the_divergence():
    whole = law([2, 0, 1], [0.6, 0.3, 0.1])
    draft = torch.distributions.Categorical(logits=logits_of(0.2, 0.5, 0.3))
    target = torch.distributions.Categorical(torch.tensor([0.3, 0.1, 0.6], dtype=torch.float64))
    expected = torch.distributions.kl_divergence(target, draft)
    assert kl(draft.logits, whole).item() == pytest.approx(expected.item(), abs=1e-12)


def test_cross_entropy_is_of_the_first_token():
    logits = logits_of(0.7, 0.2, 0.1)
    assert cross_entropy(logits, HALVES).item() == pytest.approx(-math.log(0.2), abs=1e-12)


def test_acceptance_is_minus_log_of_the_overlap():
    logits = logits_of(0.7, 0.2, 0.1)
    assert overlap(logits, HALVES).item() == pytest.approx(0.2 + 0.25, abs=1e-12)
    assert acceptance(logits, HALVES).item() == pytest.approx(-math.log(0.45), abs=1e-12)


def test_equal_laws_overlap_wholly():
    whole = law([2, 0, 1], [0.6, 0.3, 0.1])
    assert acceptance(logits_of(0.3, 0.1, 0.6), whole).item() == pytest.approx(0, abs=1e-12)


def test_a_token_that_cannot_be_drafted_counts_in_no_loss():
    """The target's best token is not in the draft vocabulary."""
    outside, without = law([-1, 0], [0.6, 0.3]), law([0], [0.3])
    logits = logits_of(0.7, 0.2, 0.1)
    assert kl(logits, outside).item() == pytest.approx(kl(logits, without).item(), abs=1e-12)
    assert overlap(logits, outside).item() == pytest.approx(0.3, abs=1e-12)
    assert cross_entropy(logits, outside).item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_equal_finite_differences(name):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    probs = torch.rand(2, 3, 4, dtype=torch.float64, generator=generator) / 5
    ids = torch.stack([torch.randperm(6, generator=generator)[:4] for _ in range(6)]).view(2, 3, 4)
    ids[0, 0, 1] = -1
    some = TopLaw(ids, probs)
    assert LOSSES[name](logits, some).shape == (2, 3)
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](x, some), (logits,))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_draws_the_draft_to_the_target(name):
    """Plain descent ends where the loss says it should."""
    whole = law([2, 0, 1], [0.6, 0.3, 0.1])
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        LOSSES[name](logits, whole).backward()
        logits.data -= 0.3 * logits.grad
        logits.grad = None
    wanted = [0.0, 0.0, 1.0] if name == "cross_entropy" else [0.3, 0.1, 0.6]
    assert logits.softmax(-1).tolist() == pytest.approx(wanted, abs=0.03)
