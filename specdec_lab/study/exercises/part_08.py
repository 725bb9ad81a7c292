"""Checks of the exercises of notebook 08."""

from __future__ import annotations

from collections.abc import Callable


def check_tokens_to_read(tokens_to_read: Callable[[int, int], int | None]) -> str:
    """Notebook 08: ``tokens_to_read(k, accepted)`` is what a draft cache lacks after a step."""
    for k, accepted in ((4, 0), (4, 3), (4, 4), (1, 1)):
        got, want = tokens_to_read(k, accepted), 1 + (accepted == k)
        if got is None:
            return "Not yet: return a number."
        if got != want:
            story = (
                "the last drafted token was never read, and there is the bonus"
                if accepted == k
                else "what was refused is cut away, so only the new pending token is missing"
            )
            return f"Not yet: k = {k}, accepted {accepted}: {story}."
    return "Right: one token, or two after full acceptance."


def check_break_even_tau(with_cost: float | None, without_cost: float | None) -> str:
    """Notebook 08: tau that pays for a verification of 1.3 and 4 draft forwards of 0.25, or 0."""
    if with_cost is None or without_cost is None:
        return "Not yet: replace both None by numbers."
    if abs(without_cost - 1.3) > 0.005:
        return "Not yet: with free drafts a step still costs its verification."
    if abs(with_cost - 2.3) > 0.005:
        return "Not yet: a step costs one verification and four draft forwards."
    return "Right: tau must pay for V + k c, and plain decoding gets one token for 1."
