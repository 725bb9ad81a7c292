"""Checks of the exercises of notebook 04."""

from __future__ import annotations

from collections.abc import Callable


def check_per_token_speedup(speedup: Callable[[float, int, float], float | None]) -> str:
    """Notebook 04: ``speedup(acceptance, k, draft_cost)`` where every drafted token costs c."""
    for acceptance, k, cost in ((0.7, 1, 0.1), (0.8, 6, 0.1), (0.3, 4, 0.5)):
        want = sum(acceptance**i for i in range(k + 1)) / (1 + k * cost)
        got = speedup(acceptance, k, cost)
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-6:
            hint = "is every drafted token paid for, and is the target's own token counted?"
            return f"Not yet: for a = {acceptance}, k = {k}, c = {cost} it is not {got:.3g}; {hint}"
    return "Right: the same tokens as before, divided by 1 + k c instead of 1 + c."


def check_break_even_of_two(least: Callable[[float], float | None]) -> str:
    """Notebook 04: ``least(c)``, the acceptance at which k = 2 at cost 1 + c gains nothing."""
    for cost in (0.2, 0.5, 1.0):
        got = least(cost)
        if got is None:
            return "Not yet: return a number."
        if abs(got + got * got - cost) > 1e-6:
            return (
                f"Not yet: with c = {cost} and an acceptance of {got:.3g} a step writes "
                f"{1 + got + got * got:.3g} tokens and costs {1 + cost:.3g}. Make them equal."
            )
    return "Right: the solution of a + a² = c; a second guess lowers what the first must bring."


def check_acceptance_estimate(estimate: Callable[[list[tuple[int, int]]], float | None]) -> str:
    """Notebook 04: ``estimate(steps)`` of the acceptance, ``steps`` being (drafted, accepted)."""
    cases = [
        ([(4, 1), (4, 0)], 1 / 3, "what lies behind a refusal was never judged"),
        ([(4, 4), (4, 2)], 6 / 7, "a step that keeps its whole draft refused nothing"),
    ]
    for steps, want, story in cases:
        got = estimate(list(steps))
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-6:
            return f"Not yet: {story}. For {steps} it is {want:.3f}, not {got:.3g}."
    return "Right: accepted / (accepted + refused), at most one refusal a step."
