"""EAGLE 1, 2 and 3: a drafter that goes on from the target's own features.

Each row of the target's last layers knows the whole text. EAGLE drafts on that level: one decoder
layer predicts the next feature from the features so far and the tokens behind them.

* EAGLE-1 (Li et al. 2024, arXiv 2401.15077): the feature is the target's final state, what is
  predicted is the next one, and the target's own head reads it.
* EAGLE-2 (Li et al. 2024, arXiv 2406.16858): the same weights; drafts are dynamic trees.
* EAGLE-3 (Li et al. 2025, arXiv 2503.01840): features of three layers fused into one; what the
  layer carries on need not look like a feature of the target, and has a head of its own.
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


class Eagle(FeatureDraft):
    """Drafts with EAGLE's head of ``version`` 1, 2 or 3: the third's chains, or trees if ``tree``;
    chains with 1, and with 2 trees from the weights of 1.

    Trees are those of EAGLE-2 where they are greedy: the ``width`` most probable nodes of each of
    ``depth`` levels are expanded and the best k kept; else a node of level ``i`` draws
    ``branching[i]`` children. The other options are those of `FeatureDraft`.
    """

    def __init__(
        self,
        target: Target,
        version: int = 3,
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
        if version not in (1, 2, 3):
            raise ValueError(f"version must be 1, 2 or 3, not {version!r}.")
        if tree and version == 1:
            raise ValueError("EAGLE-1 drafts chains; its weights draft trees with version=2.")
        super().__init__(
            target,
            Eagle3Head if version == 3 else Eagle1Head,
            weights,
            vocab,
            drafting=drafting,
            num_speculative_tokens=num_speculative_tokens,
            min_confidence=min_confidence,
            shape=TreeShape.checked(width, depth, branching) if tree or version == 2 else None,
        )


class Eagle1Head(FeatureHead):
    """x = W [e(t_{i+1}); f_i] + b, one decoder layer, and what comes out is f_{i+1} as predicted.

    Kept from the paper: shifted tokens, the frozen head on the predicted feature. Changed:
    features are standardised and embeddings brought to unit size before they are mixed; the layer
    has the norm at its input that the paper leaves out, as it starts as the target's last; the head
    covers a draft vocabulary, with a bias.
    """

    method = "eagle_1"

    def __init__(self, target: Target, vocab: DraftVocab) -> None:
        hidden = target.hidden_size
        super().__init__(target, vocab, (target.num_layers,), hidden)
        self.mix = nn.Linear(2 * hidden, hidden)

    def read(self, features: Tensor, tokens: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The predicted features, and the same as states of the target: both (B, N, H)."""
        embedded = nn.functional.rms_norm(self.embed(tokens), features.shape[-1:])
        mixed = self.mix(torch.cat((embedded, features), dim=-1))
        predicted = self._layer(mixed.to(features.dtype), layout)  # a stream as whole as it came
        return predicted, predicted * self.state_spread + self.state_mean

    def initialise(self, target: Target, generator: torch.Generator) -> None:
        """W = [small | OUTPUT_SCALE I]: what is predicted lies between the feature and the mean."""
        hidden = self.arch.hidden_size
        randomise(self.mix.weight[:, :hidden], generator, TOKEN_GAIN * OUTPUT_SCALE)
        self.mix.weight.data[:, hidden:] = OUTPUT_SCALE * torch.eye(hidden)
        self.mix.bias.data.zero_()
        self._copy_last_layer(target, final_scale(self, target), generator)


class Eagle3Head(FeatureHead):
    """g = W3 [h_low; h_mid; h_high]; q, k and v read [norm(e(t_{i+1})); norm(g_i)]; the stream is
    g; what the layer makes of it is the next feature, and its own head reads that behind a norm.

    Kept from the paper: the fusion of three layers, a layer of twice the input width, the head of
    its own on a draft vocabulary, features that only the loss on tokens shapes. Changed: each of
    the three states is standardised; the head starts as rows of the target's, with a bias.
    """

    method = "eagle_3"

    def __init__(self, target: Target, vocab: DraftVocab) -> None:
        hidden = target.hidden_size
        super().__init__(target, vocab, fused_layers(target.num_layers), 2 * hidden)
        self.fuse = nn.Linear(len(self.hidden_layers) * hidden, hidden, bias=False)
        self.token_norm = RMSNorm(hidden, self.arch.norm_eps)
        self.output_norm = RMSNorm(hidden, self.arch.norm_eps)
        self.head.weight.requires_grad_(True)

    def features(self, hidden: dict[int, Tensor]) -> Tensor:
        """g: the states of the three layers fused into one feature, (..., H)."""
        return self.fuse(self.standardised(hidden))

    def read(self, features: Tensor, tokens: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """What the layer makes of the features, and the same behind a norm: both (B, N, H)."""
        normed = self.token_norm(self.embed(tokens)), self.attention_norm(features)
        x = features + self.attention(torch.cat(normed, dim=-1), layout, 0)
        x = x + self.mlp(self.mlp_norm(x))
        return x, self.output_norm(x)

    def initialise(self, target: Target, generator: torch.Generator) -> None:
        """W3 = [0 | 0 | I]: the feature is that of the highest layer."""
        hidden = self.arch.hidden_size
        self.fuse.weight.data.zero_()
        self.fuse.weight.data[:, -hidden:] = torch.eye(hidden)
        mean, spread = self.state_mean[-hidden:], self.state_spread[-hidden:]
        scale = spread / (mean.square() + spread.square()).mean().sqrt()
        self.output_norm.weight.data.copy_(OUTPUT_SCALE * scale * target.model.norm.weight)
        self._copy_last_layer(target, scale, generator)


def fused_layers(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and a high layer of the target: 2, half way and the third last, as in the
    paper's code; other ones where there are fewer than eight.
    """
    middle = num_layers // 2
    layers = (min(2, num_layers // 4), middle, max(num_layers - 3, middle + 1))
    return tuple(dict.fromkeys(layers))
