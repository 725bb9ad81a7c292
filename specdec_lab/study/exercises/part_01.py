"""Checks of the exercises of notebook 01."""

from __future__ import annotations

import math
from collections.abc import Callable


def check_kv_bytes(kv_bytes: Callable[[int, int, int, int, float], float | None]) -> str:
    """Notebook 01: ``kv_bytes(num_layers, num_kv_heads, head_dim, context, bytes_per_value)``."""
    for case in ((30, 3, 64, 1, 2), (30, 3, 64, 1000, 2), (2, 8, 128, 10, 0.5)):
        got, want = kv_bytes(*case), 2 * math.prod(case)
        if got is None:
            return "Not yet: return a number of bytes."
        if got == want / 2:
            return f"Not yet: kv_bytes{case} is twice {got:,.0f}: keys AND values are stored."
        if got != want:
            return f"Not yet: kv_bytes{case} should be {want:,.0f}, not {got:,.0f}."
    return "Right: two vectors per layer and key/value head, for every token of the context."


def check_ridge_rows(ridge_rows: Callable[[float, float, float], float | None]) -> str:
    """Notebook 01: ``ridge_rows(flops, bandwidth, bytes_per_weight)`` of a forward's products."""
    cases = [
        (989e12, 3.35e12, 2.0, "with 2 bytes a weight, n rows have n FLOP per byte"),
        (989e12, 3.35e12, 0.5, "a smaller weight is read faster, so the ridge comes earlier"),
        (100e9, 20e9, 4.0, "each row does 2 FLOPs with a weight of 4 bytes"),
    ]
    for flops, bandwidth, size, story in cases:
        got, want = ridge_rows(flops, bandwidth, size), flops / bandwidth * size / 2
        if got is None:
            return "Not yet: return a number of rows."
        if abs(got - want) > 1e-6 * want:
            asked = f"ridge_rows({flops:.3g}, {bandwidth:.3g}, {size:g})"
            return f"Not yet: {story}. {asked} should be {want:.3g}, not {got:.3g}."
    return "Right: reading and computing take equally long there."


def check_step_time(step_time: Callable[[int], float | None]) -> str:
    """Notebook 01: ``step_time(rows)`` in ms: reading takes 20 ms, computing 4 ms a row."""
    for rows in (1, 5, 6, 20):
        got, want = step_time(rows), max(20, 4 * rows)
        if got is None:
            return "Not yet: return a number of milliseconds."
        if got == 20 + 4 * rows:
            return "Not yet: reading and computing go on at once. Which of them is waited for?"
        if abs(got - want) > 1e-9:
            return f"Not yet: for {rows} rows it should be {want} ms, not {got:g}."
    return "Right: the longer of the two; up to 5 rows, computing hides behind reading."
