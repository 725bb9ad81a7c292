"""How the heads that read features are trained: EAGLE-1, EAGLE-3 and MTP.

All three draft by reading what they wrote themselves, and all three learn it by being unrolled over
the text (`unrolling`). One step learns faster from scratch than three, so training starts with one:
the share ``unrolled_from`` of it. In the papers EAGLE-3 and MTP are unrolled all the time and
EAGLE-1 never is: there, without the unrolled end, acceptance falls with every drafted token, as the
head meets states that it has never seen. ``unrolled_from=1.0`` trains EAGLE-1 as its paper does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lab.decoding.target import Target
from specdec_lab.proposers.eagle import Eagle1Head, Eagle3Head, fused_layers
from specdec_lab.proposers.feature_head import FeatureHead
from specdec_lab.proposers.mtp import MTPHead
from specdec_lab.training.losses import LOSSES
from specdec_lab.training.methods import Method, log_unigram, some_states
from specdec_lab.training.states import Batch, Texts
from specdec_lab.training.unrolling import unroll

NUM_STEPS = 3  # unrolled, when they are


class FeatureMethod(Method):
    """One decoder layer over features and tokens, judged at four depths.

    Up to the share ``unrolled_from`` of training only the first drafted token is learned, then
    ``num_steps`` of them: the later ones from the head's own features.
    """

    head: ClassVar[type[FeatureHead]]
    module: FeatureHead
    depth = 4
    learning_rate = 1e-3
    storage = "int6"
    unrolled_from: float = 0.5

    def __init__(
        self,
        target: Target,
        texts: Texts,
        loss: str = "kl",
        seed: int = 0,
        num_steps: int = NUM_STEPS,
        unrolled_from: float | None = None,
    ) -> None:
        super().__init__(target, texts.vocab, loss)
        self.num_steps = num_steps
        if unrolled_from is not None:
            self.unrolled_from = unrolled_from
        self.module = self.head.for_target(target, texts.vocab)
        states = torch.cat([some_states(texts, i) for i in self.hidden_layers(target)], dim=-1)
        self.module.state_mean.copy_(states.mean(0))  # states (n, layers * H)
        self.module.state_spread.copy_(states.std(0).clamp(min=1e-3))
        self.module.initialise(target, torch.Generator().manual_seed(seed))

    @staticmethod
    def hidden_layers(target: Target) -> tuple[int, ...]:
        """The states after the final norm."""
        return (target.num_layers,)

    def options(self) -> dict[str, str]:
        """How it was unrolled; the head itself needs nothing beside its weights."""
        return {"num_steps": str(self.num_steps), "unrolled_from": str(self.unrolled_from)}

    def trained_depth(self, progress: float) -> int:
        """One step at first, then ``num_steps``."""
        return 1 if progress < self.unrolled_from else self.num_steps

    def logits(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """A step a depth, as many as are asked for."""
        for _, states in unroll(self.module, batch, depth):
            yield self.module.logits(states)


class Eagle1Method(FeatureMethod):
    """Learns the target's next feature, and its law through the target's own head.

    ``feature_weight`` is how much the smooth L1 distance of features counts beside the loss of the
    laws. In the paper it is 1 to 0.1 the other way round, on a hundred times the data; features are
    standardised here, so that none of them outweighs the others.
    """

    name = Eagle1Head.method
    head = Eagle1Head
    learning_rate = 5e-4
    unrolled_from = 0.7

    def __init__(
        self, target: Target, texts: Texts, feature_weight: float = 0.5, **how: object
    ) -> None:
        super().__init__(target, texts, **how)
        self.feature_weight = feature_weight

    def options(self) -> dict[str, str]:
        """The weight of features, too."""
        return {**super().options(), "feature_weight": str(self.feature_weight)}

    def losses(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """That of the laws and that of the features, (N,) each depth."""
        true = self.module.features(batch.hidden)  # (B, T, H)
        for number, (features, states) in enumerate(unroll(self.module, batch, depth)):
            law, _ = batch.judged_at(number)
            of_laws = LOSSES[self.loss_name](self.module.logits(states), law)
            goal = true[batch.read_at(number)].to(features.dtype)
            distance = F.smooth_l1_loss(features, goal, reduction="none").mean(-1)
            yield of_laws + self.feature_weight * distance


class Eagle3Method(FeatureMethod):
    """Learns the law alone: what it passes on to itself may be any feature that serves it.

    Its head's bias starts from how often tokens come. The two others start from the target's mean
    state, of which the target's head makes a law that says as much.
    """

    name = Eagle3Head.method
    head = Eagle3Head

    def __init__(self, target: Target, texts: Texts, **how: object) -> None:
        super().__init__(target, texts, **how)
        self.module.head.bias.data.copy_(log_unigram(texts))

    @staticmethod
    def hidden_layers(target: Target) -> tuple[int, ...]:
        """A low, a middle and a high layer."""
        return fused_layers(target.num_layers)


class MTPMethod(FeatureMethod):
    """FastMTP: one module, unrolled, and the first tokens count most."""

    name = MTPHead.method
    head = MTPHead
    depth_weight = 0.6
