"""A feature head on its own: what becomes of it with every token that it goes on by itself.

`walk` asks a head along known texts, as it will be asked when it drafts: the first step reads the
target's true features, each later one what the step before made. Tokens are those of the text, so
a step is judged where all tokens drafted before it are right. `KeepsDrafted` is an EAGLE that never
replaces what it drafted by the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lab.decoding.low_bit import LowBitLinear
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle
from specdec_lab.proposers.feature_draft import FeatureDraft
from specdec_lab.proposers.feature_head import FeatureHead
from specdec_lab.study.live_training import LessonStates
from specdec_lab.training.states import Batch, Texts
from specdec_lab.training.unrolling import unroll


@dataclass(frozen=True, slots=True)
class Walk:
    """What a head drafts at N places of texts, D tokens at each; all (D, N).

    ``judged``: the text goes on so far. ``reached``: and all favourites before this one were the
    text. ``agreed``: the head's favourite, of probability ``confidence``, is the target's.
    ``error`` and ``size`` are mean squares of the predicted feature less the true one, and of the
    true one.
    """

    judged: Tensor
    reached: Tensor
    agreed: Tensor
    confidence: Tensor
    error: Tensor
    size: Tensor

    @property
    def accepted(self) -> Tensor:
        """Reached, and agreed on."""
        return self.reached & self.agreed

    @property
    def alpha(self) -> list[float]:
        """The share accepted of what is reached, by depth."""
        return (self.accepted.sum(1) / self.reached.sum(1).clamp(min=1)).tolist()

    def alpha_where_known(self, least: int = 20) -> list[float]:
        """alpha down to the last depth that at least so many places reach."""
        reached = self.reached.sum(1).tolist()
        return [a for a, number in zip(self.alpha, reached, strict=True) if number >= least]

    @property
    def tau(self) -> float:
        """Tokens a step of chains of D tokens, from every place of the texts."""
        return 1 + float(torch.tensor(self.alpha).cumprod(0).sum())

    @property
    def agreement(self) -> list[float]:
        """The share agreed on, by depth, whatever would have been drafted before: every place of
        the texts says something about every depth, and with true tokens only features can be wrong.
        """
        return ((self.agreed & self.judged).sum(1) / self.judged.sum(1)).tolist()

    @property
    def feature_error(self) -> list[float]:
        """Mean square error over mean square of the true features, by depth: 1 is no better than to
        predict the mean feature everywhere.
        """
        return ((self.error * self.judged).sum(1) / (self.size * self.judged).sum(1)).tolist()

    def calibration(self, depths: Sequence[int], bins: int = 5) -> list[dict]:
        """Drafted tokens that are reached at ``depths`` (0 is the first) by their confidence: its
        mean and the share accepted in each of ``bins`` equal parts of 0 to 1 that has any.
        """
        reached = self.reached[list(depths)]
        sure, taken = self.confidence[list(depths)][reached], self.accepted[list(depths)][reached]
        number = (sure * bins).long().clamp(max=bins - 1)
        rows = [(sure[number == i], taken[number == i]) for i in range(bins)]
        return [
            {
                "confidence": float(some.mean()),
                "accepted": float(yes.double().mean()),
                "num": len(some),
            }
            for some, yes in rows
            if len(some)
        ]


@dataclass(frozen=True, slots=True)
class Answered:
    """A prompt and its answer, as training knows texts."""

    prompt: Sequence[int]
    answer: Sequence[int]
    domain: str = ""


def batches_of(
    target: Target, texts: Iterable[Answered], layers: Iterable[int], vocab: DraftVocab
) -> list[Batch]:
    """The texts with the target's states of ``layers`` and its laws; one forward a text."""
    states = LessonStates(target, sorted(set(layers)))
    return list(Texts(list(texts), states, vocab).once())


@torch.no_grad()
def walk(head: FeatureHead, vocab: DraftVocab, batches: Iterable[Batch], depth: int) -> Walk:
    """``depth`` drafted tokens at every place of the answers in ``batches``."""
    steps = [
        torch.cat(parts, 1)
        for parts in zip(*(_walked(head, vocab, b, depth) for b in batches), strict=True)
    ]
    return Walk(*steps)


def _walked(head: FeatureHead, vocab: DraftVocab, batch: Batch, depth: int) -> tuple[Tensor, ...]:
    """The fields of `Walk` for one batch."""
    true = head.features(batch.hidden)  # (B, T, H)
    on_text = torch.ones_like(batch.token_at(0), dtype=torch.bool)  # (N,)
    rows = []
    for step, (features, states) in enumerate(unroll(head, batch, depth)):
        law, judged = batch.judged_at(step)
        confidence, best = head.logits(states).softmax(-1).max(-1)  # (N,), draft ids
        goal = true[batch.read_at(step)]  # (N, H)
        reached = on_text & judged
        agreed = best == law.ids[:, 0]
        error, size = (x.square().mean(-1) for x in (features - goal, goal))
        rows.append((judged, reached, agreed, confidence, error, size))
        on_text = reached & (vocab.to_target(best) == batch.token_at(step + 1))
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True))


@torch.no_grad()
def first_token_chances(
    target: Target,
    head: FeatureHead,
    vocab: DraftVocab,
    batches: Iterable[Batch],
    temperatures: Sequence[float],
) -> dict[str, list[float]]:
    """The chance that the first drafted token is accepted, a mean at each temperature: ``greedy``
    is p of the head's favourite, ``sampled`` is sum min(p, q). From whole laws.

    The batches must hold the target's final states beside those of the head.
    """
    sums, number = torch.zeros(2, len(temperatures), dtype=torch.float64), 0
    for batch in batches:
        _, judged = batch.judged_at(0)
        _, states = next(unroll(head, batch, 1))
        own = head.logits(states)[judged]  # (n, Vd)
        final = batch.hidden[target.num_layers][batch.read_at(0)][judged]
        told = target.model.head(final)  # (n, V)
        number += len(own)
        for place, temperature in enumerate(temperatures):
            p = (told / temperature).softmax(-1).index_select(-1, vocab.draft_to_target)  # (n, Vd)
            q = (own / temperature).softmax(-1)
            sums[0, place] += p.gather(1, q.argmax(-1, keepdim=True)).sum()
            sums[1, place] += torch.minimum(p, q).sum()
    greedy, sampled = (sums / number).tolist()
    return {"greedy": greedy, "sampled": sampled}


class KeepsDrafted(Eagle):
    """EAGLE whose cache keeps the pairs of accepted tokens as they were drafted, with the features
    that the head made itself: what skipping the re-reading costs. Chains only.
    """

    def _forget(self, context: Context) -> None:
        """Back to the accepted pairs, drafted ones included."""
        self._cache.roll_back(torch.minimum(self._cache.lengths, context.lengths - 2))
        self._cache.settle(int(self._cache.lengths.max()))


def with_whole_products(drafter: FeatureDraft) -> FeatureDraft:
    """The same drafter, its head's products made whole: in low-bit ones, rows that are read
    together share their levels, so what is read by hand, node by node, would differ a little.
    """
    for module in list(drafter.head.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LowBitLinear):
                setattr(module, name, child.whole)
    return drafter
