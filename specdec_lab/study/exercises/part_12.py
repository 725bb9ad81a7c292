"""Checks of the exercises of notebook 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def check_seen(seen: Callable[[list[int], int], set[int] | None]) -> str:
    """Notebook 12: ``seen(parents, node)``, the drafted nodes that a node sees, itself included."""
    cases = (
        ([-1, 0, 1], 2, {0, 1, 2}, "in a chain a node sees all before it"),
        ([-1, -1], 1, {1}, "a sibling stands on no path but its own"),
        ([-1, -1, 0, 1, 2, 2], 5, {0, 2, 5}, "go up from parent to parent until -1"),
    )
    for parents, node, want, story in cases:
        got = seen(list(parents), node)
        if got is None:
            return "Not yet: return a set of node numbers."
        if set(got) != want:
            return f"Not yet: {story}. seen({parents}, {node}) should be {want}, not {set(got)}."
    return "Right: its ancestors and itself. The committed text it sees in any case."


def check_fixed_tree(worth: Callable[[list[int], list[float]], float | None]) -> str:
    """Notebook 12: ``worth(parents, target_probs)``, the accepted tokens of a fixed tree on average
    if node i has ``target_probs[i]`` behind its parent.
    """
    cases = (
        ([-1, 0], [0.5, 0.5], 0.75, "a chain: p1 + p1 p2"),
        ([-1, -1], [0.5, 0.25], 0.75, "two siblings: one of them, or none"),
        ([-1, -1, 0, 0, 2], [0.6, 0.3, 0.5, 0.2, 0.5], 1.47, "the chances of all paths, added up"),
    )
    for parents, probs, want, story in cases:
        got = worth(list(parents), list(probs))
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-9:
            return f"Not yet: {story}. For {parents} with {probs} it is {want:g}, not {got:.4g}."
    return "Right: every node counts with the target's chance of its whole path."


def check_block_chain(
    accepted: Callable[[Sequence[float], Sequence[float], int], float | None],
) -> str:
    """Notebook 12: ``accepted(p, q, k)``, accepted tokens of block verification if the laws p and q
    are the same at every place.
    """
    p, q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    cases = ((p, q, 1, 2 / 3), (p, q, 2, 11 / 9), (q, q, 3, 3.0), ([0.5, 0.5], [0.9, 0.1], 2, 1.0))
    for target_probs, draft_probs, k, want in cases:
        got = accepted(list(target_probs), list(draft_probs), k)
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-9:
            return (
                f"Not yet: for p = {_short(target_probs)}, q = {_short(draft_probs)} and k = {k} "
                f"it is {want:.4g}, not {got:.4g}. The weight of a text is min(that of its parent "
                "times p, q of the whole text); add up those of all texts of 1 to k tokens."
            )
    return "Right: 11/9 in the paper's example, where token verification has 10/9."


def check_traversal_weight(weigh: Callable[[float, float, float], float | None]) -> str:
    """Notebook 12: ``weigh(left_over, weight, draft_prob)``, a node's weight behind a refusal."""
    from specdec_lab.study.exact_laws import (
        completed,
        sequence_law,
        total_variation,
        toy_law,
        tree_step_law,
    )
    from specdec_lab.study.traversal import traversal_with

    if weigh(0.2, 0.5, 0.5) is None:
        return "Not yet: return a number."
    worst = 0.0
    for seed in (0, 3):
        target_law = toy_law(seed)
        step = tree_step_law(traversal_with(weigh), target_law, toy_law(seed + 1), (2, 1))
        whole = completed(step, target_law, 3)
        worst = max(worst, total_variation(whole, sequence_law(target_law, 3)))
    if worst > 1e-12:
        return (
            f"Not yet: the law that comes out is off by {worst:.2g} (total variation). Think of h "
            "in block verification: S / (S + 1 - r)."
        )
    return "Right: exact to 1e-12, on every branch."


def _short(law: Sequence[float]) -> str:
    return "(" + ", ".join(f"{x:.2g}" for x in law) + ")"
