"""The products of a decoder by themselves: the same layers, run back to back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.low_bit import LowBitLinear


def product_layers(model: nn.Module) -> list[nn.Module]:
    """The products of a packed decoder in the order of a forward; the head is the last one."""
    found: list[nn.Module] = []
    for child in model.children():
        is_product = isinstance(child, PackedLinear | LowBitLinear)
        found += [child] if is_product else product_layers(child)
    return found


def back_to_back(layers: Sequence[nn.Module], num_rows: int) -> Callable[[], None]:
    """A function that runs products one after the other on ``num_rows`` rows of random numbers."""
    inputs = [_whole(layer).in_features for layer in layers]
    weight = _whole(layers[0]).weight
    how = {"dtype": weight.dtype, "device": weight.device}
    rows = {width: torch.randn(1, num_rows, width, **how) for width in set(inputs)}

    @torch.inference_mode()
    def run() -> None:
        for layer, width in zip(layers, inputs, strict=True):
            layer(rows[width])

    return run


def _whole(layer: nn.Module) -> PackedLinear:
    """The product with whole weights that a low-bit one was made from, or the layer itself."""
    return layer.whole if isinstance(layer, LowBitLinear) else layer
