"""Checks of the exercises of notebook 06."""

from __future__ import annotations

from collections.abc import Callable


def check_draft_budget(budget: Callable[[int, int, float, int], int | None]) -> str:
    """Notebook 06: ``budget(match, k, factor, max_depth)``, the most tokens that may be drafted."""
    cases = [
        (3, 8, 1.0, 24, 3, "a match of 3 tokens is trusted for 3"),
        (3, 8, 1.5, 24, 4, "part of a token cannot be drafted: round down"),
        (9, 4, 1.0, 24, 4, "k is the limit of every proposer"),
        (20, 8, 1.0, 24, 4, "match and draft share the depth"),
    ]
    for *case, want, story in cases:
        got = budget(*case)
        if got is None:
            return "Not yet: return a number of tokens."
        if got != want:
            return f"Not yet: {story}. budget{tuple(case)} should be {want}, not {got}."
    return "Right: the smallest of three limits, in whole tokens."


def check_vote(vote: Callable[[list[str]], tuple[str, float] | None]) -> str:
    """Notebook 06: ``vote(followers)``, the most common of them and its share of the votes."""
    for followers, want in ((["b", "a", "b"], ("b", 2 / 3)), (["x"], ("x", 1.0))):
        got = vote(list(followers))
        if got is None:
            return "Not yet: return a token and its share."
        if got[0] != want[0] or abs(got[1] - want[1]) > 1e-6:
            return (
                f"Not yet: vote({followers}) should be {want[0]!r} with {want[1]:.3g}, not {got}."
            )
    return "Right: the winner, and how sure the places are."
