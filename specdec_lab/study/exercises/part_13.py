"""Checks of the exercises of notebook 13."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


def check_pairs(pairs: Callable[[list[str]], Sequence[tuple[int, str]] | None]) -> str:
    """Notebook 13: ``pairs(tokens)``, what EAGLE reads behind committed tokens, the last pending:
    the number of a feature and the token behind it, each.
    """
    cases = (
        (["I", "am", "here"], "feature 0 is that of 'I', and 'am' stands behind it"),
        (["bees", "fly", "home", "at", "night"], "shift the tokens by one"),
        (["alone"], "the pending token has no feature yet"),
    )
    for tokens, story in cases:
        got, want = pairs(list(tokens)), list(enumerate(tokens[1:]))
        if got is None:
            return "Not yet: return a list of pairs."
        if [tuple(pair) for pair in got] != want:
            return f"Not yet: {story}. pairs({tokens}) should be {want}, not {list(got)}."
    return "Right: one pair fewer than tokens, and the pending token is in the last."


def check_chain_keys(
    chain_keys: Callable[[int, int], Collection[tuple[int, int]] | None],
) -> str:
    """Notebook 13: ``chain_keys(step, place)``, the keys (step, place) that this query sees."""
    cases = (
        (0, 2, {(0, 0), (0, 1), (0, 2)}, "step 0 sees true keys up to its place"),
        (2, 1, {(0, 0), (0, 1), (1, 1), (2, 1)}, "later steps add their own chain, at their place"),
        (1, 0, {(0, 0), (1, 0)}, "a query sees itself"),
    )
    for step, place, want, story in cases:
        got = chain_keys(step, place)
        if got is None:
            return "Not yet: return a set of pairs (step, place)."
        if {tuple(key) for key in got} != want:
            return f"Not yet: {story}. chain_keys({step}, {place}) should be {want}, not {got}."
    return "Right: what the cache of a drafting head would hold there."


def check_rerank(
    rerank: Callable[[list[int], list[float], int], Sequence[int] | None],
) -> str:
    """Notebook 13: ``rerank(parents, probs, size)``, the nodes that EAGLE-2 drafts, best first."""
    cases = (
        ([-1, -1], [0.4, 0.6], 1, [1], "the likelier one"),
        ([-1, -1, 0, 0], [0.3, 0.25, 0.1, 0.9], 3, [0, 3, 1], "multiply along the path"),
        ([-1, 0, 1, -1], [0.5, 1.0, 1.0, 0.5], 3, [0, 1, 2], "equal scores: the earlier one"),
    )
    for parents, probs, size, want, story in cases:
        got = rerank(list(parents), list(probs), size)
        if got is None:
            return "Not yet: return a list of node numbers."
        if list(got) != want:
            return (
                f"Not yet: {story}. For parents {parents}, probs {probs} and size {size} it is "
                f"{want}, not {list(got)}."
            )
    return "Right: a child never scores above its parent, so the nodes hang together."
