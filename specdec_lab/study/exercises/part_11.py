"""Checks of the exercises of notebook 11."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def check_reads_and_guesses(reads_and_guesses: Callable[[int, int], tuple | None]) -> str:
    """Notebook 11: ``reads_and_guesses(i, step)`` are the place of the token that a chain reads in
    that step (0 is the first) and the place that it guesses, when it starts from state i.
    """
    for i, step in ((0, 0), (4, 0), (4, 1), (7, 3)):
        got, want = reads_and_guesses(i, step), (i + 1 + step, i + 2 + step)
        if got is None:
            return "Not yet: return two places."
        if tuple(got) != want:
            return (
                f"Not yet: state {i}, step {step}: the first step reads the pending token, one "
                "place behind the state, and every step goes one place on."
            )
    return "Right: it reads i + 1 + step and guesses i + 2 + step."


def check_step_weights(weights: Sequence[float] | None) -> str:
    """Notebook 11: the weights of four steps for beta = 0.5, adding up to 1."""
    if weights is None:
        return "Not yet: replace None by four numbers."
    if len(weights) != 4:
        return "Not yet: one weight for each of the four steps."
    if abs(sum(weights) - 1) > 0.005:
        return "Not yet: divide by their sum, so that they add up to 1."
    if any(abs(w - 0.5**d / 1.875) > 0.005 for d, w in enumerate(weights)):
        return "Not yet: each weight is half the one before it."
    return "Right: 1, 1/2, 1/4, 1/8 over 1.875; the fourth token counts one part in fifteen."


def check_price_of_a_step(price: float | None) -> str:
    """Notebook 11: what a step of k = 1 costs, in plain steps, when the drafted token is accepted
    with 0.85 and decoding is 1.8 times as fast.
    """
    if price is None:
        return "Not yet: replace None by a number."
    if abs(price - 1.85 / 1.8) > 0.005:
        return "Not yet: tau is 1 + 0.85, and the speed-up is tau over the price of a step."
    return "Right: 1.85 / 1.8 = 1.03; a step with one module more is hardly dearer than without."
