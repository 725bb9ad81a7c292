"""Checks of the exercises of notebook 05."""

from __future__ import annotations

from collections.abc import Callable


def check_first_place(look_up: Callable[[list[int], int, int], list[int]]) -> str:
    """Notebook 05: ``look_up(text, n, k)``: up to k tokens behind the FIRST place of the tail."""
    cases = [
        ([1, 2, 7, 1, 2, 8, 1, 2], 2, 3, [7, 1, 2], "the tail 1 2 stands there twice; first place"),
        ([1, 2, 7, 1, 2], 2, 9, [7, 1, 2], "what does not exist yet is not drafted"),
        ([5, 5, 5], 2, 4, [5], "a place may overlap the tail, but it is not the tail itself"),
        ([1, 2, 3], 2, 4, [], "the tail stands nowhere else: nothing is drafted"),
    ]
    for text, n, k, want, story in cases:
        got = look_up(list(text), n, k)
        if got != want:
            return f"Not yet: {story}. look_up({text}, {n}, {k}) should be {want}, not {got}."
    return "Right: the same place as NGram(occurrence='first') for one n."


def check_fair_tau(fair_tau: Callable[[list[tuple[int, int, float]]], float | None]) -> str:
    """Notebook 05: ``fair_tau(runs)`` of (tokens, forwards, rep4): pooled, without loops."""
    got = fair_tau([(60, 50, 0.0), (60, 20, 0.1), (60, 6, 0.8)])
    if got is None:
        return "Not yet: return a number."
    if abs(got - 180 / 76) < 1e-6:
        return "Not yet: the third output is a loop (its rep4 is 0.8); leave it out."
    if abs(got - (60 / 50 + 60 / 20) / 2) < 1e-6:
        return "Not yet: ratios are pooled: add up first, divide once at the end."
    if abs(got - 120 / 70) > 1e-6:
        return f"Not yet: 120 tokens in 70 forwards are not {got:.3g}."
    return "Right: loops apart, sums first, one division last."
