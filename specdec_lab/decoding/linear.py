"""Matrix products for few rows: prepacked for oneDNN on the CPU in float32, plain everywhere else.

Speculative decoding lives off scoring five rows for little more than the price of one. PyTorch's
stock float32 product does not give that on a CPU; weights packed once for oneDNN do. The two
operators are private to torch (they are what its own compiler emits when it freezes a model for the
CPU), so they are probed once and never required.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TILE = 4  # rows: a layout packed for so many is good for any number
Module = TypeVar("Module", bound=nn.Module)


@cache
def packing_works() -> bool:
    """Whether this build of torch has the packed product and it agrees with ``F.linear``."""
    probe = torch.Generator().manual_seed(0)
    weight, rows = torch.randn(48, 32, generator=probe), torch.randn(1, 5, 32, generator=probe)
    try:
        product = _packed_product(rows, _pack(weight), None)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.allclose(product, F.linear(rows, weight), atol=1e-4)


def small_products_are_slow() -> bool:
    """Whether one to three rows take longer than a whole tile: so it is where oneDNN has AVX-512.

    There a row alone goes through a matrix-vector path; with AVX2 a row alone is the fastest.
    """
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TILE)


def _packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")


class PackedLinear(nn.Module):
    """The fast copy of an ``nn.Linear`` for inference: same product, no gradient, weights not held
    twice.

    On the CPU in float32 the weight is packed (or, where torch lacks the operators, multiplied as
    ``W @ x.T`` for two rows and more); on other devices and in other precisions it is an ordinary
    product.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()  # (out, in)
        self.bias = None if linear.bias is None else linear.bias.detach()  # (out,)
        self.on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        self.packed = self.on_cpu and packing_works()
        self.weight = _pack(weight) if self.packed else weight
        self.fills_tile = self.packed and (small_products_are_slow() or not self._one_row_agrees())

    @torch.no_grad()
    def _one_row_agrees(self) -> bool:
        """Whether a row alone is bitwise the same as among others: some shapes sum in another order
        then.
        """
        rows = torch.randn(2, self.in_features, generator=torch.Generator().manual_seed(0))
        alone = _packed_product(rows[:1], self.weight, None)
        return torch.equal(alone, _packed_product(rows, self.weight, None)[:1])

    def unpacked(self) -> Tensor:
        """The weight (out, in) as it was before packing."""
        return self.weight.to_dense() if self.packed else self.weight

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W.T + b`` for ``x`` of shape (..., in); returns (..., out)."""
        num_rows = x.numel() // self.in_features
        if self.fills_tile and 0 < num_rows < TILE:
            return self._filled_product(x, num_rows)
        if self.packed:
            return _packed_product(x, self.weight, self.bias)
        if self.on_cpu and num_rows > 1:
            return self._transposed_product(x)
        return F.linear(x, self.weight, self.bias)

    def _filled_product(self, x: Tensor, num_rows: int) -> Tensor:
        """The first rows of the product of a whole tile, the others being zeros."""
        filled = F.pad(x.reshape(num_rows, -1), (0, 0, 0, TILE - num_rows))  # (TILE, in)
        product = _packed_product(filled, self.weight, self.bias)[:num_rows]
        return product.reshape(*x.shape[:-1], self.out_features)

    def _transposed_product(self, x: Tensor) -> Tensor:
        product = (self.weight @ x.flatten(0, -2).T).T  # (rows, out)
        product = product if self.bias is None else product + self.bias
        return product.reshape(*x.shape[:-1], self.out_features)


def packed_copy(module: Module) -> Module:
    """The fast copy of any module for inference: its products packed, its other parameters shared
    with it, no gradients.
    """
    fast = copy.deepcopy(module, {id(p): p for p in module.parameters()})
    for part in list(fast.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                setattr(part, name, PackedLinear(child))
    return fast
