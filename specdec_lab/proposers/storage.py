"""How a tensor of trained weights lies in a file: in 16 bits, or a matrix in 8 or 6 with scales.

8 bits have a scale for every row. 6 bits have one for every ``GROUP`` columns and lie four to three
bytes; rounding then moves a weight by about 2 % of the spread of its group, a draft's choice hardly
ever, and the law of the text not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

STORAGES = ("float16", "int8", "int6")
SCALE = ".scale"  # ends the name of a matrix's scales
GROUP = 64  # columns of a matrix in 6 bits that share a scale
SIX_BITS = 31  # the largest level, and its negative the smallest


def stored(name: str, tensor: Tensor, storage: str) -> dict[str, Tensor]:
    """The tensors that are written for one: floats in ``storage``, whole numbers as they are.

    Matrices that 6 bits do not suit (columns that are no multiple of ``GROUP``) get 8.
    """
    if not tensor.is_floating_point():
        return {name: tensor.contiguous()}
    if storage == "float16" or tensor.ndim != 2:
        return {name: tensor.to(torch.float16).contiguous()}
    if storage == "int6" and tensor.shape[1] % GROUP == 0:
        return _in_six_bits(name, tensor.float())
    scales = (tensor.float().abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
    return {name: (tensor / scales).round().to(torch.int8), name + SCALE: scales}


def loaded(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor that `stored` wrote, in float32 if it was a floating one."""
    tensor = tensors[name]
    if name + SCALE not in tensors:
        return tensor.float() if tensor.is_floating_point() else tensor
    scales = tensors[name + SCALE].float()
    if tensor.dtype == torch.int8:
        return tensor.float() * scales
    levels = _unpacked(tensor).float().unflatten(1, (-1, GROUP))
    return (levels * scales[..., None]).flatten(1)


def shape_of(dtype: str, shape: list[int]) -> list[int]:
    """The shape of a tensor that lies in a file as ``shape`` of ``dtype`` (in its own words)."""
    return [shape[0], shape[1] * 4 // 3] if dtype == "U8" else shape


def _in_six_bits(name: str, matrix: Tensor) -> dict[str, Tensor]:
    groups = matrix.unflatten(1, (-1, GROUP))  # (rows, groups, GROUP)
    scales = (groups.abs().amax(-1) / SIX_BITS).clamp(min=1e-7).half()
    levels = (groups / scales.float()[..., None]).round().clamp(-SIX_BITS, SIX_BITS)
    return {name: _packed(levels.flatten(1).to(torch.int32)), name + SCALE: scales}


def _packed(levels: Tensor) -> Tensor:
    """Levels (rows, columns) from -31 to 31 as bytes (rows, columns * 3 / 4)."""
    a, b, c, d = (levels + 32).unflatten(1, (-1, 4)).unbind(-1)
    bits = a | b << 6 | c << 12 | d << 18
    return torch.stack([bits >> shift & 255 for shift in (0, 8, 16)], -1).flatten(1).byte()


def _unpacked(packed: Tensor) -> Tensor:
    low, middle, high = packed.int().unflatten(1, (-1, 3)).unbind(-1)
    bits = low | middle << 8 | high << 16
    return torch.stack([(bits >> shift & 63) - 32 for shift in (0, 6, 12, 18)], -1).flatten(1)
