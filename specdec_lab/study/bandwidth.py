"""What a row costs on this machine: the products of one forward beside the limits of the memory.

Medians of times, and medians of ratios within a round (`stopwatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.study.measure.cost import ROWS
from specdec_lab.study.roofline import Device, product_shapes, product_weights
from specdec_lab.study.stopwatch import Times, alternate, time_arms

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target
    from specdec_lab.decoding.transformer import Architecture

PRODUCTS = ("stock", "packed", "bf16")
HIDDEN = 2.0  # times one row: from there on five rows are not cheap any more
SQUARE = 1024  # side of the matrices whose product tells the machine's FLOP/s


def measure_rows(
    target: Target, rows: Sequence[int] = ROWS, rounds: int = 5
) -> dict[str, list | dict | float]:
    """Seconds of all products of one forward, by product and number of rows.

    ``stock`` is ``F.linear`` matrix by matrix, as Hugging Face models call it; ``packed`` are the
    target's own layers; ``bf16`` is ``F.linear`` on weights of half the size. ``read`` adds up all
    float32 weights, which is reading them and hardly more; ``square`` multiplies two square
    matrices, which hardly reads.
    """
    times = time_arms(_arms(target, rows), rounds)
    seconds = times.medians()
    read, square = seconds["read"], seconds["square"]
    return {
        "rows": list(rows),
        "rounds": rounds,
        "seconds": {p: [seconds[f"{p} {n}"] for n in rows] for p in PRODUCTS},
        "cost": {p: [_cost(times, p, n, rows[0]) for n in rows] for p in PRODUCTS},
        "weights": product_weights(target.model.arch),
        "read_seconds": read,
        "bandwidth": product_weights(target.model.arch) * 4 / read,
        "flops": 2 * SQUARE**3 / square,
    }


def this_machine(measured: dict) -> Device:
    """The machine as a device of the roofline, from what `measure_rows` returned; float32."""
    return Device("this machine", measured["bandwidth"], measured["flops"])


def verdict(measured: dict) -> str:
    """One sentence: whether the stock product shows here that five rows are cheap."""
    five = measured["rows"].index(5)
    stock, packed = measured["cost"]["stock"][five], measured["cost"]["packed"][five]
    times = measured["seconds"]["stock"][five] / measured["seconds"]["packed"][five]
    shows = "hides" if stock > HIDDEN else "does not hide"
    return (
        f"Here the stock product {shows} that rows are cheap: five rows cost {stock:.2f} times one "
        f"row, prepacked {packed:.2f} times, and {times:.2f} times as long as prepacked."
    )


def measure_phases(
    target: Target, ids: Sequence[int], lengths: Sequence[int], rounds: int = 3, new: int = 8
) -> list[dict[str, float]]:
    """Prompt length, ttft, itl and tokens/s of both phases, for prompts cut from ``ids``."""

    def run(length: int) -> tuple[float, float]:
        trace = generate(target, [ids[:length]], max_new_tokens=new).trace
        return trace.ttft, trace.itl

    table = []
    for length, pairs in alternate({n: (lambda n=n: run(n)) for n in lengths}, rounds).items():
        ttft, itl = (median(values) for values in zip(*pairs, strict=True))
        table.append({"prompt": length, "ttft": ttft, "itl": itl, "read": length / ttft})
    return table


def _arms(target: Target, rows: Sequence[int]) -> dict[str, Callable[[], object]]:
    arch = target.model.arch
    flat = torch.randn(product_weights(arch), generator=torch.Generator().manual_seed(0))
    stock, half = _cut(flat, arch), _cut(flat.bfloat16(), arch)
    packed = [m for m in target.model.modules() if isinstance(m, PackedLinear)]
    square = torch.randn(SQUARE, SQUARE)
    work = {"read": flat.sum, "square": lambda: square @ square}
    for n in rows:
        inputs = {width: torch.randn(1, n, width) for width in {w.shape[1] for w in stock}}
        halves = {width: x.bfloat16() for width, x in inputs.items()}
        work[f"stock {n}"] = lambda x=inputs: [F.linear(x[w.shape[1]], w) for w in stock]
        work[f"packed {n}"] = lambda x=inputs: [layer(x[layer.in_features]) for layer in packed]
        work[f"bf16 {n}"] = lambda x=halves: [F.linear(x[w.shape[1]], w) for w in half]
    return work


def _cut(flat: Tensor, arch: Architecture) -> list[Tensor]:
    """The matrices of all products, cut from one long tensor."""
    shapes = [shape for part in product_shapes(arch).values() for shape in part]
    pieces = flat.split([rows * columns for rows, columns in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _cost(times: Times, product: str, rows: int, first: int) -> float:
    """Median over the rounds of the time of so many rows over the time of the first."""
    return times.ratio(f"{product} {rows}", f"{product} {first}").median
