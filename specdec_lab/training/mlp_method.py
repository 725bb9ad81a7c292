"""How the stages of an MLP speculator are trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_lab.decoding.target import Target
from specdec_lab.proposers.mlp_speculator import NUM_STAGES, WIDTH, MLPStages, new_stages
from specdec_lab.training.methods import Method, log_unigram, some_states
from specdec_lab.training.states import Batch, Texts


class MLPSpeculatorMethod(Method):
    """All stages on the true tokens of the text, each from what the one before it carries."""

    name = "mlp_speculator"
    module: MLPStages
    learning_rate = 2e-3

    def __init__(
        self,
        target: Target,
        texts: Texts,
        loss: str = "kl",
        seed: int = 0,
        num_stages: int = NUM_STAGES,
        width: int = WIDTH,
    ) -> None:
        super().__init__(target, texts.vocab, loss)
        self.depth = num_stages
        self.module = new_stages(target, texts.vocab, num_stages, width)
        states = some_states(texts, *self.hidden_layers(target))  # (n, H)
        self.module.state_mean.copy_(states.mean(0))
        self.module.state_spread.copy_(states.std(0).clamp(min=1e-3))
        generator = torch.Generator().manual_seed(seed)
        self.module.initialise(generator, float(states.square().mean().sqrt()))
        self.module.head.bias.data.copy_(log_unigram(texts))

    @staticmethod
    def hidden_layers(target: Target) -> tuple[int, ...]:
        """The states after the final norm."""
        return (target.num_layers,)

    def options(self) -> dict[str, str]:
        """The size of the stages."""
        return {"num_stages": str(self.module.num_stages), "width": str(self.module.width)}

    def logits(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """One stage a depth, at most as many as there are."""
        (states,) = batch.hidden.values()
        carried = self.module.first(states[batch.anchors()])  # (N, H)
        for number in range(min(depth, self.depth)):
            carried = self.module.stage(number, carried, batch.token_at(number))
            yield self.module.logits(carried)
