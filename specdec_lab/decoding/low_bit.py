"""Products with weights of 4 or 8 bits: an eighth or a quarter of the bytes, and another law.

A model whose products are rounded so is lossy as a target and lossless as a draft: whatever it
proposes, verification keeps the target's own law. torch has operators for such weights on the CPU.
They are probed once; where they are missing or a shape does not fit, the same rounded weights are
multiplied plainly: nearly the same law, and no gain.

In 8 bits the rows are rounded too, on levels that all rows of one product share: a quick product of
whole numbers, in which a row may differ a little by its company.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lab.decoding.linear import Module, PackedLinear, packed_copy
from specdec_lab.decoding.target import Target

LOW_BITS = {"int8": 8, "int4": 4}
Product = Callable[[Tensor], Tensor]
GROUP = 32  # in 4 bits, neighbours along a row that share their levels; in 8 bits, a whole row
HEAD_BITS = 8  # whatever the layers have: nothing behind it evens its errors out
FEW_ROWS = {4: 8, 8: 16}  # more rows are bound by arithmetic, and whole weights serve better


def round_to_levels(
    weight: Tensor, bits: int = 4, group: int = GROUP
) -> tuple[Tensor, Tensor, Tensor]:
    """``weight`` (out, in) with each group of neighbours along a row on its own ``2**bits`` levels.

    Returns the level of every weight, (out, in / group, group), and the lowest level and the step
    of every group, each (out, in / group, 1): a weight is about ``low + level * step``. The levels
    lie evenly between the smallest and the largest weight of the group, so both ends stay exact.
    Raises ValueError unless ``group`` divides the row.
    """
    if weight.shape[1] % group:
        raise ValueError(f"group must divide the {weight.shape[1]} weights of a row, not {group}.")
    groups = weight.unflatten(1, (-1, group))  # (out, in / group, group)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp(min=torch.finfo(weight.dtype).tiny)
    return ((groups - low) / step).round(), low, step


class LowBitLinear(nn.Module):
    """A product with rounded weights, made from a whole one, which many rows go on using.

    ``packed`` says whether torch's operator does it. For more than ``FEW_ROWS[bits]`` rows (a
    prompt) the whole product is as fast and better, and its weights are there anyway.
    """

    def __init__(self, whole: PackedLinear, bits: int) -> None:
        super().__init__()
        self.whole, self.bits = whole, bits
        weight = whole.unpacked()  # (out, in)
        self.packed = low_bit_works(bits) and _fits(weight, bits)
        self.product = _OPERATORS[bits](weight) if self.packed else _plain(_rounded(weight, bits))
        self.bias = whole.bias  # (out,) or None
        self.most = FEW_ROWS[bits] * whole.in_features  # numbers in so many rows

    def __deepcopy__(self, memo: dict) -> LowBitLinear:
        return self  # nothing in it ever changes, and every copy may share it

    @property
    def num_bytes(self) -> int:
        """Bytes of weights and scales that a packed product of few rows reads."""
        numbers = self.whole.in_features * self.whole.out_features
        if self.bits == 8:
            return numbers + 4 * self.whole.out_features
        return numbers // 2 + 4 * (numbers // GROUP)

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W.T + b`` for ``x`` of shape (..., in); returns (..., out)."""
        if x.numel() > self.most:
            return self.whole(x)
        product = self.product(x)
        return product if self.bias is None else product + self.bias


def low_bit_copy(target: Target, bits: int) -> Target:
    """A second target whose products of few rows use 4- or 8-bit weights; its head always has 8.

    With a head of 4 bits too, the default model's copy misses its tokens three times as often: its
    layers came from 4 bits, its head from 8. Everything else is shared with ``target``: norms,
    biases, the table that looks tokens up, the tokenizer, and the whole products, which read its
    prompts. Raises ValueError for other bits.
    """
    if bits not in LOW_BITS.values():
        raise ValueError(f"bits must be 4 or 8, not {bits!r}.")

    def make(product: PackedLinear) -> LowBitLinear:
        return LowBitLinear(product, HEAD_BITS if product is target.model.head else bits)

    return target.with_model(with_products(target.model, make), f"int{bits}")


def drafting_copy(module: Module, bits: int = 8) -> Module:
    """The fast copy of a module that drafts: packed, and where torch can, products of few rows have
    ``bits`` bits. What it says then *is* the draft's law, so all that is lost is some acceptance.
    """

    def make(product: PackedLinear) -> nn.Module:
        suits = product.on_cpu and low_bit_works(bits)
        return LowBitLinear(product, bits) if suits else product

    return with_products(packed_copy(module), make)


def with_products(model: Module, make: Callable[[PackedLinear], nn.Module]) -> Module:
    """A copy of a packed ``model`` with ``make(product)`` in the place of every product; all else
    is shared.
    """
    products = [module for module in model.modules() if isinstance(module, PackedLinear)]
    shared = {id(p): p for p in model.parameters()} | {id(p): p for p in products}
    copied = copy.deepcopy(model, shared)
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, PackedLinear):
                setattr(module, name, make(child))
    return copied


# --- torch's operators ----------------------------------------------------------------------------


@cache
def low_bit_works(bits: int) -> bool:
    """Whether this build of torch has the product of ``bits`` and it agrees with ``F.linear``."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(32, 64, generator=generator)
    rows = torch.randn(3, 64, generator=generator)
    try:
        product = _OPERATORS[bits](weight)(rows)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.allclose(product, F.linear(rows, _rounded(weight, bits)), atol=0.5)


def _fits(weight: Tensor, bits: int) -> bool:
    """Whether torch's product takes this weight: in 4 bits, 16 rows and a group at a time."""
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    divides = weight.shape[0] % 16 == 0 and weight.shape[1] % GROUP == 0
    return on_cpu and (divides or bits == 8)


def _rounded(weight: Tensor, bits: int) -> Tensor:
    """The weights (out, in) that the product of ``bits`` stands for."""
    if bits == 8:
        scales = _row_scales(weight)
        return (weight / scales).round() * scales
    divides = weight.shape[1] % GROUP == 0
    levels, low, step = round_to_levels(weight, bits, GROUP if divides else weight.shape[1])
    return (low + levels * step).flatten(1)


def _row_scales(weight: Tensor) -> Tensor:
    """In 8 bits a row's levels are -127 .. 127 times its scale, (out, 1)."""
    return weight.abs().amax(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny) / 127


def _plain(weight: Tensor) -> Product:
    return lambda x: F.linear(x, weight)


def _eight_bits(weight: Tensor) -> Product:
    """Whole numbers by whole numbers: the rows are rounded to 8 bits, or 7 where sums overflow."""
    return _whole_number_product(weight, short_rows=_sums_overflow())


def _whole_number_product(weight: Tensor, short_rows: bool) -> Product:
    scales = _row_scales(weight)
    levels = (weight / scales).round().to(torch.int8)
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():  # torch means to move these tensors to another package one day
        warnings.simplefilter("ignore", UserWarning)
        levels = torch._make_per_channel_quantized_tensor(levels, scales[:, 0].double(), zeros, 0)
    packed = torch.ops.quantized.linear_prepack(levels, None)
    multiply = torch.ops.quantized.linear_dynamic.default
    return lambda x: multiply(x, packed, short_rows)


@cache
def _sums_overflow() -> bool:
    """Whether two products of 8 by 8 bits are added in 16 bits, as on processors without VNNI."""
    ones = torch.ones(16, 64)
    return not torch.allclose(
        _whole_number_product(ones, short_rows=False)(ones), torch.tensor(64.0), rtol=0.02
    )


def _four_bits(weight: Tensor) -> Product:
    """Rows in bfloat16; (in / group, out, 2) steps and middles, as levels count from -8."""
    levels, low, step = round_to_levels(weight)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.flatten(1).int(), 1)
    scales = torch.cat((step, low + 8 * step), -1).transpose(0, 1).contiguous().bfloat16()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    def product(x: Tensor) -> Tensor:
        rows = x.bfloat16().reshape(-1, x.shape[-1])
        found = multiply(rows, packed, GROUP, scales)
        return found.to(x.dtype).view(*x.shape[:-1], found.shape[1])

    return product


_OPERATORS: dict[int, Callable[[Tensor], Product]] = {4: _four_bits, 8: _eight_bits}
