"""One class a method: what is trained, how it reads a batch, and what is written down about it.

The trainer knows this interface and no method. A method says which logits its draft would have at
every depth on the target's own text; loss and held-out acceptance follow from those alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from specdec_lab.decoding.target import Target
from specdec_lab.proposers.draft_vocab import DraftVocab, count_tokens
from specdec_lab.proposers.weights import describe_target, trained_state
from specdec_lab.training.losses import LOSSES
from specdec_lab.training.states import Batch, Texts

STATISTICS = 40  # texts that means, spreads and scales are taken from


class Method:
    """What the trainer asks for: ``module``, ``depth``, `logits` and `metadata`.

    ``depth`` is how many drafted tokens are looked at, ``loss`` a name in ``LOSSES``; token ``d``
    weighs ``depth_weight**d``, as it is drafted only after those before it. ``storage`` is how the
    weights are kept, ``earlier`` what the metadata of weights say that training went on from.
    """

    name: str
    module: nn.Module
    depth: int
    learning_rate: float = 1e-3
    depth_weight: float = 0.8
    storage: str = "int6"

    def __init__(self, target: Target, vocab: DraftVocab, loss: str = "kl") -> None:
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}.")
        self.target, self.vocab, self.loss_name = target, vocab, loss
        self.earlier: dict[str, str] = {}

    @staticmethod
    def hidden_layers(target: Target) -> tuple[int, ...]:
        """The target's layers whose states the method reads."""
        return ()

    def logits(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """For each of ``depth`` drafted tokens, the logits (N, Vd) at every anchor of ``batch``,
        where the drafted tokens before it are those of the text.
        """
        raise NotImplementedError

    def options(self) -> dict[str, str]:
        """What is needed beside the weights to build the module again."""
        return {}

    def trained_depth(self, progress: float) -> int:
        """How many drafted tokens are trained when the share ``progress`` of training is done."""
        return self.depth

    def losses(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """For each of ``depth`` drafted tokens, the loss (N,) at every anchor of ``batch``."""
        for number, logits in enumerate(self.logits(batch, depth)):
            law, _ = batch.judged_at(number)
            yield LOSSES[self.loss_name](logits, law)

    def loss(self, batch: Batch, progress: float = 0.0) -> Tensor:
        """The mean loss over judged places and depths, (); ``progress`` is the share of training
        that is done, for methods that change what they learn.
        """
        total, weights = torch.zeros(()), torch.zeros(())
        for depth, losses in enumerate(self.losses(batch, self.trained_depth(progress))):
            _, judged = batch.judged_at(depth)
            weight = self.depth_weight**depth * judged
            total = total + (losses * weight).sum()
            weights = weights + weight.sum()
        return total / weights.clamp(min=1)

    def metadata(self) -> dict[str, str]:
        """What the weights are for, and how to build the module again."""
        said = {"method": self.name, **describe_target(self.target), **self.options()}
        if self.earlier:
            said["went_on_from"] = self.earlier["data_hash"]
        return said

    def tensors(self) -> dict[str, Tensor]:
        """What goes into the weights file."""
        return trained_state(self.module) | {"draft_to_target": self.vocab.draft_to_target}


def log_unigram(texts: Texts) -> Tensor:
    """log of each draft token's share of the answers (Vd,), with one token of each added, less its
    mean: where a head's bias may start.
    """
    counts = count_tokens((t.answer for t in texts.texts), len(texts.vocab.target_to_draft))
    logs = (counts[texts.vocab.draft_to_target.cpu()].float() + 1).log()
    return logs - logs.mean()


def some_states(texts: Texts, layer: int) -> Tensor:
    """States (n, H) of ``layer`` at the anchors of the first texts."""
    few = range(min(STATISTICS, len(texts.texts)))
    batches = (texts.batch([number]) for number in few)
    return torch.cat([batch.hidden[layer][batch.anchors()] for batch in batches]).float()
