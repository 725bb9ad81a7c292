"""Products in bfloat16 for a float32 model: half the bytes, and twice the speed where the processor
multiplies bfloat16.

Only the products are rounded; the residual stream, norms, attention and logits stay in float32. The
law is near the target's and not it: good for writing training text, as the labels are computed from
the float32 target anyway.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import Tensor, nn

from specdec_lab.decoding.linear import PackedLinear, packing_works
from specdec_lab.decoding.low_bit import with_products
from specdec_lab.decoding.target import Target

ROWS = 64  # what the layout is packed for


class HalfLinear(nn.Module):
    """The product of a packed float32 layer with weights and rows rounded to bfloat16."""

    def __init__(self, whole: PackedLinear) -> None:
        super().__init__()
        weight = whole.unpacked().bfloat16().contiguous()  # (out, in)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self.bias = None if whole.bias is None else whole.bias.bfloat16()

    def __deepcopy__(self, memo: dict) -> HalfLinear:
        return self  # nothing in it ever changes, and every copy may share it

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out), in the precision of ``x``."""
        product = torch.ops.mkldnn._linear_pointwise(
            x.bfloat16(), self.weight, self.bias, "none", [], ""
        )
        return product.to(x.dtype)


@cache
def half_works() -> bool:
    """Whether torch has these products on this processor: on x86 it asks for AVX-512."""
    return packing_works() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def half_copy(target: Target) -> Target:
    """A second target whose products are in bfloat16, everything else shared; the target itself
    where there are none.
    """
    if not half_works():
        return target
    return target.with_model(with_products(target.model, HalfLinear), "bfloat16 products")


@cache
@torch.no_grad()
def half_is_faster() -> bool:
    """Whether such a product is clearly faster here and now than the float32 one."""
    if not half_works():
        return False
    whole = PackedLinear(nn.Linear(576, 8192, bias=False))
    rows = torch.randn(ROWS, 576)
    return _seconds(HalfLinear(whole), rows) < 0.8 * _seconds(whole, rows)


def _seconds(product: nn.Module, rows: Tensor) -> float:
    """CPU time of the fastest of five products."""
    spent = []
    for _ in range(5):
        start = time.process_time()
        product(rows)
        spent.append(time.process_time() - start)
    return min(spent)
