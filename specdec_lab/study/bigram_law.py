"""A small proposer with a law of its own, for lessons on coins and refusals."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.base import Proposer


class BigramLaw(Proposer):
    """A plug-in that *draws* its draft: what followed this token so far, at random, by frequency.

    ``q(y | x)`` is proportional to how often ``y`` followed ``x`` in the text, plus ``smoothing``
    times the share of ``y`` in the whole text. A weak law, but a true one: it hands over the very
    tensor it drew from, and so the ratio rule may judge it.
    """

    def __init__(self, vocab_size: int, smoothing: float = 0.2) -> None:
        self.vocab_size, self.smoothing = vocab_size, smoothing

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """k tokens a row, each drawn from the law after the one before; probs is (B, k, V)."""
        token, tokens, probs = context.pending, [], []
        for place in range(k):
            probs.append(self._law(context, token))
            token = randomness.draw(probs[-1], context.lengths, Lane.DRAFT, place)
            tokens.append(token)
        count = torch.full_like(context.lengths, k)
        return Draft(torch.stack(tokens, 1), count, probs=torch.stack(probs, 1))

    def _law(self, context: Context, token: Tensor) -> Tensor:
        """What may follow ``token`` (B,), (B, V) float64."""
        places = torch.arange(context.tokens.shape[1], device=context.tokens.device)
        written = places < context.lengths[:, None]  # (B, L)
        text = context.tokens.where(written, 0)
        follows = written[:, 1:] & (text[:, :-1] == token[:, None])  # (B, L-1)
        share = written.double() * self.smoothing / context.lengths[:, None]
        law = share.new_zeros(len(token), self.vocab_size)
        law = law.scatter_add(1, text, share).scatter_add(1, text[:, 1:], follows.double())
        return law / law.sum(-1, keepdim=True)
