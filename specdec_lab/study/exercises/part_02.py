"""Checks of the exercises of notebook 02."""

from __future__ import annotations

from collections.abc import Callable


def check_walk(walk: Callable[[list[int], list[int]], list[int]]) -> str:
    """Notebook 02: ``walk(drafted, says)`` returns the tokens that a greedy step writes."""
    cases = [
        ([7, 8, 9], [7, 8, 9, 4], [7, 8, 9, 4], "all drafted tokens are right: the bonus is free"),
        ([7, 8, 9], [7, 5, 9, 4], [7, 5], "draft 2 is wrong: what lies behind it is thrown away"),
        ([7, 8], [6, 8, 9], [6], "draft 1 is wrong: the target's own token is still written"),
        ([], [3], [3], "nothing is drafted: the step is a plain one"),
    ]
    for drafted, says, want, story in cases:
        got = walk(list(drafted), list(says))
        if got != want:
            return f"Not yet: {story}. walk({drafted}, {says}) should be {want}, not {got}."
    return "Right: front to back, stop at the first refusal, and always one token of the target."


def check_cache_length(cache_length: Callable[[int, list[int]], int]) -> str:
    """Notebook 02: ``cache_length(prompt_length, accepted)`` after steps with these numbers of
    accepted tokens.
    """
    cases = [
        (10, [], 9, "before the first step the prompt's last token is pending"),
        (10, [0], 10, "a step always writes one token more than it accepts"),
        (10, [4, 0, 2], 18, "every step adds its accepted tokens and one more"),
    ]
    for prompt_length, accepted, want, story in cases:
        got = cache_length(prompt_length, list(accepted))
        if got != want:
            asked = f"cache_length({prompt_length}, {accepted})"
            return f"Not yet: {story}. {asked} should be {want}, not {got}."
    return "Right: the cache holds everything but the pending token."


def check_keep(keep: Callable[[float, float, float], bool]) -> str:
    """Notebook 02: ``keep(target_prob, draft_prob, coin)`` decides on one drafted token."""
    cases = [
        (0.6, 0.3, 0.99, True, "the target likes the token more than the draft does: keep it"),
        (0.2, 0.8, 0.24, True, "the coin 0.24 lies below 0.2 / 0.8 = 0.25"),
        (0.2, 0.8, 0.26, False, "the coin 0.26 lies above 0.2 / 0.8 = 0.25"),
        (0.0, 0.5, 0.0, False, "the target never says this token, and coins can be exactly 0"),
    ]
    for target_prob, draft_prob, coin, want, story in cases:
        got = bool(keep(target_prob, draft_prob, coin))
        if got != want:
            asked = f"keep({target_prob}, {draft_prob}, {coin})"
            return f"Not yet: {story}. {asked} should be {want}."
    return "Right: keep the token where coin < min(1, p / q), with < and not <=."
