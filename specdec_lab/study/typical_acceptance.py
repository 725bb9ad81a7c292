"""Typical acceptance, the lossy rule of Medusa: a contrast for the lessons, never a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft, Scores, Verdict
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import check_chain, laws


@dataclass(frozen=True, slots=True)
class TypicalAcceptance:
    """LOSSY: accepts a drafted token x if p(x) > min(epsilon, delta * exp(-H(p))).

    H is the entropy of the target's law p after temperature, in nats (Cai et al. 2024, section
    2.3.1, for chains). No coin is tossed and the draft's law is not looked at, so what is emitted
    follows neither p nor q. The token behind the accepted run is drawn from p; Medusa's own code
    takes the argmax there, which moves the law further. Hand an instance over as ``verify``.
    """

    lossless: ClassVar[bool] = False
    epsilon: float = 0.09
    delta: float = 0.3

    def __call__(
        self,
        context: Context,
        draft: Draft,
        scores: Scores,
        sampling: Sampling,
        randomness: Randomness,
    ) -> Verdict:
        """The longest prefix of typical tokens, then one token from the target's law.

        Raises ValueError for a tree.
        """
        check_chain(draft, "typical acceptance")
        target_probs, _ = laws(context, draft, scores, sampling)  # (B, N+1, V)
        num_drafted = draft.tokens.shape[1]
        place = torch.arange(num_drafted, device=draft.tokens.device)
        typical = self.typical(target_probs[:, :-1]).gather(2, draft.tokens[..., None]).squeeze(2)
        typical = typical & (place < draft.count[:, None])  # (B, N)
        num_accepted = typical.long().cumprod(1).sum(1)
        row = num_accepted[:, None, None].expand(-1, 1, target_probs.shape[-1])
        behind = target_probs.gather(1, row).squeeze(1)  # (B, V)
        next_token = randomness.draw(behind, context.lengths, Lane.RECOVER)
        return Verdict(place.expand_as(draft.tokens), num_accepted, next_token)

    def typical(self, target_probs: Tensor) -> Tensor:
        """Which tokens of each law (..., V) would be accepted, as a mask of the same shape."""
        entropy = -torch.xlogy(target_probs, target_probs).sum(-1, keepdim=True)
        return target_probs > (self.delta * (-entropy).exp()).clamp(max=self.epsilon)

    def emitted_law(self, target_probs: Tensor, draft_probs: Tensor) -> Tensor:
        """The law (V,) of a step's first token when one token is drafted from ``draft_probs``.

        Typical tokens come as often as the draft offers them; the rest of the mass follows p.
        """
        kept = draft_probs * self.typical(target_probs)
        return kept + (1 - kept.sum()) * target_probs
