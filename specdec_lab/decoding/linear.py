"""Matrix products for few rows: prepacked for oneDNN on the CPU in float32, plain everywhere else.

Speculative decoding lives off scoring five rows for little more than the price of one. PyTorch's
stock float32 product does not give that on a CPU; weights packed once for oneDNN do. The two
operators are private to torch (they are what its own compiler emits when it freezes a model for the
CPU), so they are probed once and never required.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import median
from time import perf_counter
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TILE = 4  # rows: a layout packed for so many is good for any number
ROUNDS = 3  # in which a lone row is timed on its own and as a tile, once a model is packed
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
        self.fills_tile = self.packed and not self._few_rows_agree()

    @torch.no_grad()
    def _few_rows_agree(self) -> bool:
        """Whether less than a tile of rows is bitwise the same as among others: some shapes sum in
        another order then.
        """
        rows = torch.randn(TILE + 1, self.in_features, generator=torch.Generator().manual_seed(0))
        among = _packed_product(rows, self.weight, None)
        few = (_packed_product(rows[:n], self.weight, None) for n in range(1, TILE))
        return all(torch.equal(found, among[: len(found)]) for found in few)

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
    packed = []
    for part in list(fast.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                packed.append(PackedLinear(child))
                setattr(part, name, packed[-1])
    _fill_where_faster(packed)
    return fast


@torch.no_grad()
def _fill_where_faster(products: Sequence[PackedLinear]) -> None:
    """Has a lone row computed as a whole tile in the shapes in which that is faster here, though
    the bits would not ask for it: with AVX-512 some are, and it is not the instructions that tell.

    The products of one shape are timed in turn, as a model runs them: their weights, together,
    come from memory. Both ways give the same bits, so this may fall out either way.
    """
    shapes = defaultdict(list)
    for product in products:
        if product.packed and not product.fills_tile:
            shapes[product.in_features, product.out_features].append(product)
    for alike in shapes.values():
        rounds = [[_seconds(alike, fills) for fills in (False, True)] for _ in range(ROUNDS)]
        alone, filled = map(median, zip(*rounds, strict=True))
        for product in alike:
            product.fills_tile = filled < alone


def _seconds(products: Sequence[PackedLinear], fills: bool) -> float:
    """How long ``products`` of one shape take for a row each, filled to a tile or not."""
    row = torch.zeros(1, products[0].in_features)
    start = perf_counter()
    for product in products:
        product.fills_tile = fills
        product(row)
    return perf_counter() - start
