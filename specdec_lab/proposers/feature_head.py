"""Drafting heads that read the target's features: what EAGLE-1, EAGLE-3 and MTP have in common.

A pair is the target's feature of token i and the token i + 1 that was sampled behind it: the
feature alone doesn't know what was sampled (Li et al. 2024, arXiv 2401.15077). One decoder layer
reads all pairs of a text and makes of each a *next feature*, which the head turns into the law of
token i + 2, and which stands in for the target's own where that is not known yet.

Features are standardised: some dimensions of a language model are hundreds of times larger than
others, and a small layer learns faster where all weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import (
    MLP,
    Attention,
    Layout,
    RMSNorm,
    chain_layout,
    tree_layout,
)
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.short_model import trainable_copy
from specdec_lab.proposers.weights import check_fits, load_trained_state, read_weights

BRANCH = 0.3  # what attention and MLP each add to a stream of unit size when training starts
TOKEN_GAIN = 0.3  # of a token's embedding then
OUTPUT_SCALE = 0.3  # of the feature that is passed on then: small logits, small steps
PROBES = 64  # random rows that the size of a branch is measured with


class FeatureHead(nn.Module):
    """One decoder layer over pairs, between the target's embedding, which stays as it is, and a
    head on a draft vocabulary.

    ``hidden_layers`` are the target's layers whose states it reads, ``arch`` the numbers of its own
    layer: those of the target's. ``state_mean`` and ``state_spread``, both (layers * H,), are found
    on training data. Subclasses say how a pair is mixed and what the head reads, in `read`.
    """

    method: ClassVar[str]  # names the weights file

    def __init__(
        self, target: Target, vocab: DraftVocab, hidden_layers: tuple[int, ...], input_size: int
    ) -> None:
        super().__init__()
        self.hidden_layers = hidden_layers
        self.arch = arch = replace(target.model.arch, num_layers=1, tied=False)
        self.attention_norm = RMSNorm(arch.hidden_size, arch.norm_eps)
        self.attention = Attention(arch)
        self.attention.qkv = nn.Linear(
            input_size, self.attention.qkv.out_features, bias=arch.qkv_bias
        )
        self.mlp_norm = RMSNorm(arch.hidden_size, arch.norm_eps)
        self.mlp = MLP(arch)
        size = len(hidden_layers) * arch.hidden_size
        self.register_buffer("state_mean", torch.zeros(size))
        self.register_buffer("state_spread", torch.ones(size))
        self.embed = nn.Embedding.from_pretrained(target.model.embed.weight.detach(), freeze=True)
        self.head = vocab.head_of(target)

    @classmethod
    def for_target(cls, target: Target, vocab: DraftVocab) -> Self:
        """A head for ``target``, on its device and in its precision; not initialised."""
        return cls(target, vocab).to(target.device, target.dtype)

    def features(self, hidden: dict[int, Tensor]) -> Tensor:
        """The target's true states, each (..., H), as `read` takes them: (..., H)."""
        return self.standardised(hidden)

    def standardised(self, hidden: dict[int, Tensor]) -> Tensor:
        """The states asked for, side by side and standardised: (..., layers * H)."""
        states = torch.cat([hidden[layer] for layer in self.hidden_layers], dim=-1)
        return (states - self.state_mean) / self.state_spread

    def read(self, features: Tensor, tokens: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Pairs of ``features`` (B, N, H) and the ``tokens`` (B, N) behind them: the next features
        and the states that `logits` takes, both (B, N, H).
        """
        raise NotImplementedError

    def forward(
        self, features: Tensor, tokens: Tensor, cache: KVCache, seen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`read` behind what ``cache`` holds: a chain of pairs, or nodes of trees that see each
        other as ``seen`` says (see `tree_layout`).
        """
        if seen is None:
            layout = chain_layout(self.arch, features, cache)
        else:
            layout = tree_layout(self.arch, features, cache, seen)
        return self.read(features, tokens, layout)

    def logits(self, states: Tensor) -> Tensor:
        """What the head makes of states (..., H): logits (..., Vd)."""
        return self.head(states)

    def initialise(self, target: Target, generator: torch.Generator) -> None:
        """A start from which training is short; ``state_mean`` and ``state_spread`` come first.

        The layer is the target's last one, and a feature is passed on nearly as it is.
        """
        raise NotImplementedError

    def new_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache for ``batch_size`` rows of up to ``max_length`` pairs."""
        return KVCache(
            batch_size,
            max_length,
            num_layers=1,
            num_kv_heads=self.arch.num_kv_heads,
            head_dim=self.arch.head_dim,
            dtype=self.embed.weight.dtype,
            device=self.embed.weight.device,
        )

    def _layer(self, x: Tensor, layout: Layout) -> Tensor:
        """The decoder layer on a stream (B, N, H)."""
        x = x + self.attention(self.attention_norm(x), layout, 0)
        return x + self.mlp(self.mlp_norm(x))

    @torch.no_grad()
    def _copy_last_layer(self, target: Target, scale: Tensor, generator: torch.Generator) -> None:
        """Start as the target's last layer, in the coordinates of the features.

        There a normed stream of the target is ``scale`` (H,) times the feature, but for a constant.
        What each branch adds is then brought to ``BRANCH``.
        """
        layer, own = trainable_copy(target.model.layers[-1]), self.attention.qkv
        randomise(own.weight, generator, TOKEN_GAIN)  # stays where tokens stand beside features
        own.weight[:, -self.arch.hidden_size :] = layer.attention.qkv.weight
        if own.bias is not None:
            own.bias.copy_(layer.attention.qkv.bias)
        layer.attention.qkv = own
        for part in ("attention_norm", "attention", "mlp_norm", "mlp"):
            getattr(self, part).load_state_dict(getattr(layer, part).state_dict())
        for norm in (self.attention_norm, self.mlp_norm):
            norm.weight.mul_(scale)
        rows = torch.randn(PROBES, 1, self.arch.hidden_size, generator=generator).to(scale)
        inputs = torch.zeros(PROBES, 1, self.attention.qkv.in_features).to(scale)
        inputs[..., -self.arch.hidden_size :] = self.attention_norm(rows)
        alone = chain_layout(self.arch, rows)
        _bring_to(self.attention.output, scale, lambda: self.attention(inputs, alone, 0))
        _bring_to(self.mlp.down, scale, lambda: self.mlp(self.mlp_norm(rows)))


def load_head(
    head_class: type[FeatureHead], target: Target, path: Path
) -> tuple[FeatureHead, DraftVocab]:
    """The head of a weights file with the draft vocabulary it was trained for.

    Raises ValueError when it is of another class or does not fit ``target``.
    """
    tensors, metadata = read_weights(path)
    if metadata.get("method") != head_class.method:
        raise ValueError(
            f"{path} holds weights for {metadata.get('method')}, not for {head_class.method}."
        )
    check_fits(path, metadata, target)
    vocab = DraftVocab(tensors.pop("draft_to_target"), target.vocab_size)
    head = head_class.for_target(target, vocab)
    load_trained_state(head, tensors)
    return head, vocab


def randomise(weight: Tensor, generator: torch.Generator, gain: float) -> None:
    """Fill ``weight`` (out, in): inputs of unit size come out ``gain`` large."""
    drawn = torch.randn(weight.shape, generator=generator)  # alike on every device
    weight.data.copy_(drawn * gain * weight.shape[1] ** -0.5)


def final_scale(head: FeatureHead, target: Target) -> Tensor:
    """What makes a standardised final state a normed stream again, but for a constant: (H,)."""
    weight = target.model.norm.weight.detach()
    return head.state_spread / torch.where(weight.abs() < 1e-3, 1e-3, weight)


def _bring_to(output: nn.Linear, scale: Tensor, branch: Callable[[], Tensor]) -> None:
    """Turn the ``output`` of a branch into the coordinates of features, ``BRANCH`` large."""
    for numbers in output.parameters():  # a weight (H, ...) and maybe a bias (H,)
        numbers.data.div_(scale.view(-1, *[1] * (numbers.ndim - 1)))
    size = branch().square().mean().sqrt()
    for numbers in output.parameters():
        numbers.data.mul_(BRANCH / size)
