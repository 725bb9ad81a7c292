"""How a draft model is taught to fill masks, all places of a text in one forward.

An et al. (2025), arXiv 2504.18583. When PARD drafts behind token a, mask b stands at position a + b
and sees the text up to a and the masks 1 to b of its own chain; it is to have the target's law
behind position a + b. Training lays these chains out behind the text, one for every place that a
draft may start from:

    text   t_0 t_1 t_2 ..                 each sees the text up to itself
    mask   (a, 1) (a, 2) ..  for all a    each sees the text up to a, and its chain up to itself

Five masks a token would make a text six times as long. COD (conditional drop-token) keeps mask b of
a share max(0.7**b, 0.2) of the chains, and only where it keeps mask b - 1: what is kept is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Transformer, layout_of
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.pard import METHOD, new_masked_model
from specdec_lab.proposers.short_model import METHOD as ONE_BY_ONE
from specdec_lab.proposers.short_model import NUM_LAYERS
from specdec_lab.proposers.weights import check_fits, load_trained_state, read_weights
from specdec_lab.training.losses import LOSSES
from specdec_lab.training.methods import Method
from specdec_lab.training.states import Batch, Texts

NUM_TRAINED = 6  # drafted tokens: one behind a real token, five behind masks
KEPT, LEAST_KEPT = 0.7, 0.2  # of the chains, at each further mask and in any case
SEEDS = 2**32  # of what is dropped, over a whole run


@dataclass(frozen=True, slots=True)
class Masks:
    """Chains of masks behind real tokens, packed row by row.

    A row with fewer masks than another is filled up with masks of anchor -1 that see each other
    alone.
    """

    anchors: Tensor  # (B, M) the last real token that a mask sees
    depths: Tensor  # (B, M) 1 for the first mask of a chain
    slots: Tensor  # (N, D) where a mask lies in its row, -1 if it was dropped

    def positions(self, length: int) -> Tensor:
        """Rotary positions (B, length + M) of a text and its masks."""
        read = torch.arange(length, device=self.anchors.device).expand(len(self.anchors), -1)
        return torch.cat((read, (self.anchors + self.depths).clamp(min=0)), 1)

    def visible(self, length: int) -> Tensor:
        """Who sees whom, (B, length + M, length + M) bool."""
        read = torch.arange(length, device=self.anchors.device)
        upto = torch.cat((read.expand(len(self.anchors), -1), self.anchors), 1)  # (B, length + M)
        text = read <= upto[..., None]
        chain = self.anchors[:, :, None] == self.anchors[:, None]  # (B, M, M)
        chain = chain & (self.depths[:, None] <= self.depths[:, :, None])
        return torch.cat((text, F.pad(chain, (0, 0, length, 0))), 2)


def masks_behind(rows: Tensor, places: Tensor, kept: Tensor, batch_size: int) -> Masks:
    """The masks of chains behind the real tokens at ``rows`` and ``places`` (N,), in rising order
    of rows, as far as they are ``kept`` (N, D).
    """
    chains, links = torch.nonzero(kept, as_tuple=True)  # (E,), (E,)
    row = rows[chains]
    counts = torch.bincount(row, minlength=batch_size)  # (B,)
    slot = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    anchors = row.new_full((batch_size, int(counts.max())), -1)
    anchors[row, slot] = places[chains]
    depths = torch.zeros_like(anchors)
    depths[row, slot] = links + 1
    slots = torch.full_like(kept, -1, dtype=torch.long)
    slots[chains, links] = slot
    return Masks(anchors, depths, slots)


def drop_tokens(num_chains: int, num_masks: int, seed: int) -> Tensor:
    """Which masks are kept, (num_chains, num_masks) bool: of every chain the first ones, of mask b
    a share max(0.7**b, 0.2) of all.
    """
    order = torch.randperm(num_chains, generator=torch.Generator().manual_seed(seed))
    shares = torch.tensor([max(KEPT**b, LEAST_KEPT) for b in range(1, num_masks + 1)])
    return order[:, None] < shares * num_chains


def fill(model: Transformer, tokens: Tensor, masks: Masks) -> Tensor:
    """One forward over texts (B, T) and their masks: the states (B, T + M, H) of both."""
    length = tokens.shape[1]
    filler = torch.full_like(masks.anchors, model.embed.mask_id)
    x = model.embed(torch.cat((tokens, filler), 1))  # (B, T + M, H)
    layout = layout_of(model.arch, masks.positions(length), masks.visible(length), x.dtype)
    for layer in model.layers:
        x = layer(x, layout)
    return model.norm(x)


class PARDMethod(Method):
    """A short model taught to have the target's law behind real tokens and behind masks.

    ``start`` is the path of a trained draft model, which knows the first half of the task already
    and says how many layers there are; left out, training starts from the target's first
    ``num_layers``. ``num_trained`` drafted tokens are trained and ``depth`` looked at; every token
    that is kept weighs the same, so those behind many masks weigh what their share is.
    """

    name = METHOD
    module: Transformer
    depth = 4
    learning_rate = 5e-4
    storage = "int6"

    def __init__(
        self,
        target: Target,
        texts: Texts,
        loss: str = "kl",
        seed: int = 0,
        num_layers: int = NUM_LAYERS,
        num_trained: int = NUM_TRAINED,
        start: str | os.PathLike | None = None,
    ) -> None:
        super().__init__(target, texts.vocab, loss)
        self.seed, self.num_trained, self.start = seed, num_trained, start
        if start is None:
            self.module = new_masked_model(target, texts.vocab, num_layers)
        else:
            self.module = _adapted(target, texts.vocab, Path(start))

    def options(self) -> dict[str, str]:
        """The depth of the model; what it was trained for and from."""
        return {
            "num_layers": str(self.module.arch.num_layers),
            "num_trained": str(self.num_trained),
            "start": "target" if self.start is None else ONE_BY_ONE,
        }

    def trained_depth(self, progress: float) -> int:
        """The same from the first step to the last."""
        return self.num_trained

    def logits(self, batch: Batch, depth: int) -> Iterator[Tensor]:
        """Behind the pending token, then behind one mask, two masks, ..., none of them dropped."""
        whole = torch.ones(len(batch.anchors()[0]), depth - 1, dtype=torch.bool)
        for _, logits in self._filled(batch, whole.to(batch.tokens.device)):
            yield logits

    def loss(self, batch: Batch, progress: float = 0.0) -> Tensor:
        """The mean loss over the tokens that are kept, (); others are dropped at every step."""
        total, number = torch.zeros(()), torch.zeros(())
        for depth, (chosen, logits) in enumerate(self._filled(batch, self._kept(batch, progress))):
            law = batch.judged_at(depth)[0][chosen]
            total = total + LOSSES[self.loss_name](logits, law).sum()
            number = number + len(chosen)
        return total / number.clamp(min=1)

    def _kept(self, batch: Batch, progress: float) -> Tensor:
        """The masks (N, D) that are kept at this step, and stand where a law judges them."""
        depths = range(1, self.num_trained)
        judged = [batch.judged_at(depth)[1] for depth in depths]
        seed = self.seed + round(progress * SEEDS)
        kept = drop_tokens(len(batch.anchors()[0]), len(depths), seed).to(batch.tokens.device)
        return kept & torch.stack(judged, 1) if judged else kept

    def _filled(self, batch: Batch, kept: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For every depth the anchors (n,) whose token is kept, and the logits (n, Vd) there."""
        rows, places = batch.read_at(0)  # of the pending tokens
        masks = masks_behind(rows, places, kept, len(batch.tokens))
        states = fill(self.module, batch.tokens, masks)
        everywhere = torch.arange(len(rows), device=rows.device)
        yield everywhere, self.module.head(states[rows, places])
        for slots in masks.slots.unbind(1):
            chosen = everywhere[slots >= 0]
            there = batch.tokens.shape[1] + slots[chosen]
            yield chosen, self.module.head(states[rows[chosen], there])


def _adapted(target: Target, vocab: DraftVocab, path: Path) -> Transformer:
    """A model to be trained, with the weights of a trained draft model.

    A head's bias goes by tokens, as the draft model may have been trained with another vocabulary.
    Raises ValueError for weights of another method or for another target's shape.
    """
    tensors, metadata = read_weights(path)
    if metadata.get("method") != ONE_BY_ONE:
        raise ValueError(
            f"{path} holds weights for {metadata.get('method')}: start from those of {ONE_BY_ONE}."
        )
    check_fits(path, metadata, target)
    model = new_masked_model(target, vocab, int(metadata["num_layers"]))
    old, ids = tensors.pop("head.bias"), tensors.pop("draft_to_target")
    bias = old.new_full((target.vocab_size,), float(old.min())).index_copy(0, ids, old)
    tensors["head.bias"] = bias[vocab.draft_to_target.cpu()]
    load_trained_state(model, tensors | {"embed.mask": model.embed.mask.detach()})
    return model
