"""How a short model is trained to have the target's law."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Transformer
from specdec_lab.proposers.short_model import NUM_LAYERS, new_short_model
from specdec_lab.training.methods import Method
from specdec_lab.training.states import Batch, Texts


class DraftModelMethod(Method):
    """The target's first layers, taught its law: the same at every depth, so one is trained."""

    name = "draft_model"
    module: Transformer
    depth = 1
    storage = "int6"

    def __init__(
        self,
        target: Target,
        texts: Texts,
        loss: str = "kl",
        seed: int = 0,
        num_layers: int = NUM_LAYERS,
    ) -> None:
        super().__init__(target, texts.vocab, loss)
        self.module = new_short_model(target, texts.vocab, num_layers)

    def options(self) -> dict[str, str]:
        """The depth of the model."""
        return {"num_layers": str(self.module.arch.num_layers)}

    def logits(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """The same logits, read one place further on for every depth."""
        states, _ = self.module(batch.tokens)  # (B, T, H)
        for number in range(depth):
            yield self.module.head(states[batch.read_at(number)])
