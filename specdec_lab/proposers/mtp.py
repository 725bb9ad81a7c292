"""Multi-token prediction: one module, used over and over, reads what it made of the last token.

DeepSeek-V3 (2024, arXiv 2412.19437) trains such a module together with the model:

    h' = M [RMSNorm(h_i); RMSNorm(e(t_{i+1}))], one block, norm, the model's own head

FastMTP (Cai et al. 2025, arXiv 2509.18362) tunes such a module further: one for all depths, whose
state behind the norm takes the place of h for the next token. That is the form here.

Ours is a *retrofit*: the target is frozen, only M, the norms and the block learn. Where both are
trained together the model's own states learn to say more than the next token; a retrofit has to
make do with what is in them. So a model that ships with its module, such as DeepSeek-V3, MiMo-7B,
GLM-4.7 or Qwen3-Next, is best drafted for by that.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Layout, RMSNorm
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.feature_draft import FeatureDraft
from specdec_lab.proposers.feature_head import (
    OUTPUT_SCALE,
    TOKEN_GAIN,
    FeatureHead,
    final_scale,
    randomise,
)
from specdec_lab.proposers.tree_expansion import TreeShape


class MTP(FeatureDraft):
    """Drafts chains, or trees if ``tree``, with one module that reads its own states.

    The options are those of `FeatureDraft`, and for the shape of trees those of `Eagle`.
    """

    def __init__(
        self,
        target: Target,
        weights: str | os.PathLike | FeatureHead | None = None,
        drafting: str = "probabilistic",
        tree: bool = False,
        width: int = 3,
        depth: int = 4,
        branching: tuple[int, ...] = (3, 2, 1, 1),
        num_speculative_tokens: int | None = None,
        min_confidence: float = 0.0,
        vocab: DraftVocab | None = None,
    ) -> None:
        super().__init__(
            target,
            MTPHead,
            weights,
            vocab,
            drafting=drafting,
            num_speculative_tokens=num_speculative_tokens,
            min_confidence=min_confidence,
            shape=TreeShape.checked(width, depth, branching) if tree else None,
        )


class MTPHead(FeatureHead):
    """Norms, M, one block and a norm; features are the target's final states, standardised.

    Kept from the papers: both norms in front of M, the norm in front of the head, and that what is
    passed on is the state behind it. Changed: the head is the target's on a draft vocabulary, with
    a bias.
    """

    method = "mtp"

    def __init__(self, target: Target, vocab: DraftVocab) -> None:
        hidden = target.hidden_size
        super().__init__(target, vocab, (target.num_layers,), hidden)
        self.feature_norm = RMSNorm(hidden, self.arch.norm_eps)
        self.token_norm = RMSNorm(hidden, self.arch.norm_eps)
        self.mix = nn.Linear(2 * hidden, hidden, bias=False)
        self.output_norm = RMSNorm(hidden, self.arch.norm_eps)

    def read(self, features: Tensor, tokens: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The features behind the norm, and the same as states of the target: both (B, N, H)."""
        normed = self.token_norm(self.embed(tokens)), self.feature_norm(features)
        mixed = self.mix(torch.cat(normed, dim=-1))
        x = self._layer(mixed.to(features.dtype), layout)  # a stream as whole as it came
        made = self.output_norm(x)
        return made, made * self.state_spread + self.state_mean

    def initialise(self, target: Target, generator: torch.Generator) -> None:
        """M = [small | I]: what is made lies between the feature and the mean."""
        hidden = self.arch.hidden_size
        randomise(self.mix.weight[:, :hidden], generator, TOKEN_GAIN)
        self.mix.weight.data[:, hidden:] = torch.eye(hidden)
        self.output_norm.weight.data.fill_(OUTPUT_SCALE)
        self._copy_last_layer(target, final_scale(self, target), generator)
