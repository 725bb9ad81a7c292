"""What a draft is trained for: three losses between its logits and the target's law.

The target's law at a place is given by its most probable tokens alone (`TopLaw`): 64 of them hold
nearly all of the mass and cost 0.4 KB, where the whole law of 49,152 tokens costs 200. A loss has
one number a place, so that the caller may mask and weigh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TopLaw:
    """The target's most probable tokens at every place, the first one first, in draft ids.

    ``probs`` are shares of the whole law: they add up to less than 1. Where the target's token is
    not in the draft vocabulary, the id is -1; it counts in no loss, as no draft can have it.
    """

    ids: Tensor  # (..., K) int64
    probs: Tensor  # (..., K)

    def __getitem__(self, index: object) -> TopLaw:
        return TopLaw(self.ids[index], self.probs[index])

    @property
    def covered(self) -> Tensor:
        """``probs``, 0 where the draft vocabulary lacks the token."""
        return self.probs.masked_fill(self.ids < 0, 0)


Loss = Callable[[Tensor, TopLaw], Tensor]


def kl(draft_logits: Tensor, law: TopLaw) -> Tensor:
    """KL(p || q) over the tokens of ``law``, (...) from logits (..., Vd): sum p (log p - log q).

    What is cut off would only add a term that the draft cannot change where it lacks the token; a
    place counts by the mass that the draft can reach. Hinton et al. (2015).
    """
    p = law.covered
    return (torch.xlogy(p, p) - p * _log_probs(draft_logits, law.ids)).sum(-1)


def cross_entropy(draft_logits: Tensor, law: TopLaw) -> Tensor:
    """-log q of the target's most probable token, (...): all that greedy decoding asks for.

    0 where that token is not in the draft vocabulary.
    """
    best = law.ids[..., :1]
    return -(_log_probs(draft_logits, best) * (best >= 0)).squeeze(-1)


def acceptance(draft_logits: Tensor, law: TopLaw) -> Tensor:
    """-log sum min(p, q), (...): the chance that a sampled draft is accepted, made large.

    Leviathan et al. (2023), section 3.2: that sum is the acceptance. It has no gradient at tokens
    of which q has enough, and none at all where p and q do not meet; so train with `kl` first.
    """
    q = _log_probs(draft_logits, law.ids).exp()
    return -overlap_of(q, law).clamp(min=1e-6).log()


def overlap(draft_logits: Tensor, law: TopLaw) -> Tensor:
    """sum min(p, q) over the tokens of ``law``, (...): the acceptance of a sampled draft at
    temperature 1, up to what lies beyond the tokens listed.
    """
    return overlap_of(_log_probs(draft_logits, law.ids).exp(), law)


def overlap_of(draft_probs: Tensor, law: TopLaw) -> Tensor:
    """The same for the draft's probabilities (..., K) of the tokens of ``law``."""
    return torch.minimum(draft_probs, law.covered).sum(-1)


def _log_probs(draft_logits: Tensor, ids: Tensor) -> Tensor:
    """log q of ``ids`` (..., K), in float32 at least; the whole log-softmax is never built."""
    if draft_logits.dtype != torch.float64:
        draft_logits = draft_logits.float()
    chosen = draft_logits.gather(-1, ids.clamp(min=0))
    return chosen - draft_logits.logsumexp(-1, keepdim=True)


LOSSES: dict[str, Loss] = {"kl": kl, "cross_entropy": cross_entropy, "acceptance": acceptance}
