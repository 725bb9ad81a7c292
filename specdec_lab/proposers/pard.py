"""PARD: a draft model that fills k places in one forward instead of writing them one by one.

An et al. (2025), arXiv 2504.18583. A draft model spends k forwards on k tokens, as each reads the
one before it. PARD teaches the same model to fill masks: it reads the newly committed tokens and
k - 1 masks behind them,

    t_1 .. t_n  MASK .. MASK   ->   x_1 (behind t_n), x_2 .. x_k (behind each mask),

all in one forward. The masks' cache entries are then forgotten, and the tokens committed in their
place are read in the next step, in front of its masks. One mask embedding serves every place, so a
model may draft more tokens than it was trained for (the paper trains 8 and drafts 12).

What it costs is acceptance: x_2 is guessed without knowing x_1, so its law is the mean over all
that could have stood there (a marginal). Those laws are q all the same: x_i is drawn from q_i, and
any q is verified exactly.

Kept from the paper: one shared mask, one forward, the training of `training.pard_method`. Ours is
small: the draft model is the target's first layers (`short_model`), and the mask, an unused token
there, is a row of its own behind the target's frozen embedding.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Transformer
from specdec_lab.proposers.chain import draft_chain
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.short_model import (
    NUM_LAYERS,
    ShortModel,
    load_short_model,
    new_short_model,
)
from specdec_lab.proposers.weights import shipped

METHOD = "pard"


class MaskedEmbedding(nn.Module):
    """A table (V, H) that stays as it is, and one trained row: the mask, whose id is V.

    The mask starts as the mean of the table: a token that could be any.
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.detach(), requires_grad=False)
        self.mask = nn.Parameter(table.detach().mean(0))  # (H,)

    @property
    def mask_id(self) -> int:
        """The id that stands for the mask: the first that the table lacks."""
        return len(self.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embeddings (..., H) of ``tokens`` (...)."""
        is_mask = tokens == self.mask_id
        known = F.embedding(tokens.masked_fill(is_mask, 0), self.weight)
        return torch.where(is_mask[..., None], self.mask, known)


class PARD(DraftModel):
    """Drafts a chain of any length in one forward of a draft model that fills masks.

    ``weights`` is a file written by training, or the model itself; left out, the weights that came
    with the project. ``drafting`` and ``min_confidence`` are as in `DraftModel`; the paper's choice
    is ``greedy``. Penalties reach the laws through the tokens drafted so far, as for every drafter;
    nothing else of a law depends on them.

    The cache invariant: between steps it holds every committed token up to the last pending one, so
    a step reads 1 to k + 1 of them, in the forward that reads the masks. Raises OSError when there
    are no weights and ValueError when they are for another shape or tokenizer.
    """

    model: ShortModel

    def __init__(
        self,
        target: Target,
        weights: str | os.PathLike | ShortModel | None = None,
        drafting: str = "probabilistic",
        num_speculative_tokens: int = 4,
        min_confidence: float = 0.0,
    ) -> None:
        if not isinstance(weights, ShortModel):
            weights = load_masked_model(target, Path(weights) if weights else shipped(METHOD))
        super().__init__(target, weights, drafting, num_speculative_tokens, min_confidence)

    @torch.no_grad()
    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Reads the prompt the first time; later only notes how many tokens are left to read."""
        is_prompt = self._committed is None
        super().observe(tokens, counts, hidden)
        self.catch_up = 1 if is_prompt else self.catch_up + tokens.shape[1]  # at most

    @torch.no_grad()
    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """``k`` tokens a row, (B, k), of which ``count`` are meant; with their laws (B, k, Vd),
        unless they are greedy.
        """
        if self._cache is None:
            raise ValueError("A draft model has to be told of the prompt: call start and observe.")
        if k == 0:
            return Draft.empty(len(context.lengths), context.lengths.device)
        logits = self._fill(context, k)  # (B, k, Vd)
        return draft_chain(
            lambda newest, place: logits[:, place],
            context,
            k,
            sampling,
            randomness,
            self.vocab,
            self.drafting,
            self.min_confidence,
        )

    def _fill(self, context: Context, k: int) -> Tensor:
        """One forward over the committed tokens that the cache lacks and the masks behind them:
        logits (B, k, Vd) behind the last token and k - 1 masks.

        Rows lack different numbers of tokens, so a row may have more masks than it needs; they come
        last and change nothing.
        """
        tokens, missing = self._missing(context)  # (B, width), (B,)
        place = torch.arange(tokens.shape[1] + k - 1, device=tokens.device)
        is_token = place < missing[:, None]
        mask = self.model.model.embed.mask_id
        nodes = F.pad(self._readable(tokens), (0, k - 1)).where(is_token, mask)
        behind = (missing - 1)[:, None] + place[:k]  # (B, k)
        logits = self._logits(nodes, behind)
        self._cache.keep(None, missing)
        self.catch_up = 0
        return logits


def new_masked_model(
    target: Target, vocab: DraftVocab, num_layers: int = NUM_LAYERS
) -> Transformer:
    """A short model that reads masks too; to be trained."""
    model = new_short_model(target, vocab, num_layers)
    model.embed = MaskedEmbedding(target.model.embed.weight)
    return model


def load_masked_model(target: Target, path: Path) -> ShortModel:
    """The model of a weights file. Raises ValueError when it does not fit ``target``."""
    return load_short_model(target, path, METHOD, new_masked_model)
