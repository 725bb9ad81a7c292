"""Checks of the exercises of notebook 09."""

from __future__ import annotations

from collections.abc import Callable


def check_rows_of_a_step(rows_of_a_step: Callable[[int, int], int | None]) -> str:
    """Notebook 09: ``rows_of_a_step(k, accepted)`` is how many tokens and masks PARD reads when the
    step before accepted so many.
    """
    for k, accepted in ((4, 0), (4, 2), (4, 4), (1, 1), (8, 3)):
        got, want = rows_of_a_step(k, accepted), accepted + 1 + k - 1
        if got is None:
            return "Not yet: return a number."
        if got != want:
            return (
                f"Not yet: k = {k}, accepted {accepted}: what the step before committed is read "
                "now, its masks are forgotten, and how many new ones stand behind?"
            )
    return "Right: accepted + 1 tokens and k - 1 masks, in one forward."


def check_second_token(one_by_one: float | None, parallel: float | None) -> str:
    """Notebook 09: the chance that the second drafted token is accepted, given the first was, when
    the target says "New York" with 0.7 and "Los Angeles" with 0.3 and both drafts know that.
    """
    if one_by_one is None or parallel is None:
        return "Not yet: replace both None by numbers."
    if abs(one_by_one - 1) > 0.005:
        return "Not yet: a draft that has read New knows what follows it, and so does the target."
    if abs(parallel - (0.7 * 0.7 + 0.3 * 0.3)) > 0.005:
        return "Not yet: take sum min(p, q) behind each first token, by how often it comes first."
    return "Right: 1 and 0.58; the mask pays for not knowing which of the two was drafted."


def check_enough_tau(tau: float | None) -> str:
    """Notebook 09: tau at which one forward of 0.15 is as fast as four of 0.12 that bring 2.2, when
    verifying costs 1.2.
    """
    if tau is None:
        return "Not yet: replace None by a number."
    want = 2.2 * (1.2 + 0.15) / (1.2 + 4 * 0.12)
    if abs(tau - want) > 0.01:
        return "Not yet: both spend tau on V + the cost of the draft; set the two ratios equal."
    return "Right: 2.2 * 1.35 / 1.68 = 1.77, so a third of the gain in tokens may be lost."
