"""A short model: the first layers of the target and its head on a draft vocabulary, trained anew.

SmolLM2-135M has no smaller sibling, so a draft model is made of the target itself: two of its
thirty layers, the final norm and a head of 8,192 tokens, an eleventh of the numbers. As they stand
these layers say little; trained on the target's own texts to have its law (distillation, Hinton et
al. 2015) they become a draft model. `DraftModel` drafts with it like with any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.low_bit import drafting_copy
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Transformer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.weights import card_of, check_fits, load_trained_state, read_weights

METHOD = "draft_model"
NUM_LAYERS = 2


class ShortModel(Target):
    """A model that reads all of the target's tokens and has logits (..., Vd) over ``vocab``.

    ``card`` says what it took to train, see `card_of`; {} where nobody knows.
    """

    def __init__(
        self,
        model: Transformer,
        vocab: DraftVocab,
        target: Target,
        card: Mapping[str, float | None] | None = None,
    ) -> None:
        super().__init__(
            model,
            max_context=target.max_context,
            eos_ids=target.eos_ids,
            tokenizer=target.tokenizer,
            name=f"{target.name}, {model.arch.num_layers} layers",
            graphs=target.graphs,
        )
        self.vocab = vocab.to(target.device)
        self.card = card or {}

    def _made_fast(self, model: Transformer) -> Transformer:
        return drafting_copy(model)


def new_short_model(target: Target, vocab: DraftVocab, num_layers: int = NUM_LAYERS) -> Transformer:
    """The target's first ``num_layers`` layers and its norm, copied to be trained, between its
    embedding and the rows of its head, which stay as they are.

    Raises ValueError unless the target has that many layers.
    """
    if not 1 <= num_layers <= target.num_layers:
        raise ValueError(f"num_layers must be from 1 to {target.num_layers}, not {num_layers!r}.")
    arch = replace(target.model.arch, num_layers=num_layers, tied=False)
    with torch.device("meta"):
        model = Transformer(arch)
    model.embed = nn.Embedding.from_pretrained(target.model.embed.weight.detach(), freeze=True)
    model.layers = nn.ModuleList(
        trainable_copy(layer) for layer in target.model.layers[:num_layers]
    )
    model.norm = copy.deepcopy(target.model.norm)
    model.head = vocab.head_of(target)
    for part in (model.layers, model.norm):
        part.requires_grad_(True)
    return model


def load_short_model(
    target: Target,
    path: Path,
    method: str = METHOD,
    new_model: Callable[[Target, DraftVocab, int], Transformer] = new_short_model,
) -> ShortModel:
    """The short model of a weights file for ``method``, whose modules ``new_model`` makes.

    Raises ValueError when it does not fit ``target``.
    """
    tensors, metadata = read_weights(path)
    if metadata.get("method") != method:
        raise ValueError(f"{path} holds weights for {metadata.get('method')}, not for {method}.")
    check_fits(path, metadata, target)
    vocab = DraftVocab(tensors.pop("draft_to_target"), target.vocab_size)
    model = new_model(target, vocab, int(metadata["num_layers"]))
    load_trained_state(model, tensors)
    return ShortModel(model, vocab, target, card_of(path))


def trainable_copy(layer: nn.Module) -> nn.Module:
    """A copy of a layer that shares nothing with it, ordinary products in the place of packed
    ones.
    """
    packed = (module for module in layer.modules() if isinstance(module, PackedLinear))
    return copy.deepcopy(layer, {id(module): _plain(module) for module in packed})


def _plain(packed: PackedLinear) -> nn.Linear:
    weight = packed.unpacked().clone()
    linear = nn.Linear(*reversed(weight.shape), bias=packed.bias is not None, device="meta")
    linear.weight = nn.Parameter(weight)
    if packed.bias is not None:
        linear.bias = nn.Parameter(packed.bias.clone())
    return linear
