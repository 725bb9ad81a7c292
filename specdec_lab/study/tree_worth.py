"""What a draft is worth: the tokens that a step accepts on average, exactly, from the laws.

Chains and trees, drawn or fixed, judged token by token or as a block: all are compared on the same
recorded laws (`LawForest`), so nothing is left to chance. A draft ends behind a text that the
forest does not hold; that depends on nothing but what was drafted, so it is lossless. Every
function returns one number per place, (R,), without the bonus or recovered token of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import torch
from torch import Tensor

from specdec_lab.study.law_forest import LawForest

WIDEST = 4  # children of a node in `best_drawn_tree`


def by_reject(forest: LawForest, branching: Sequence[int]) -> Tensor:
    """A tree in which a node of level ``i`` draws ``branching[i]`` children without replacement,
    judged by ``reject``. Ones make it a chain, for which this is token verification.
    """
    taken = {children: accepted_of(forest, children) for children in set(branching)}
    return _from_the_leaves(forest, [taken[children] for children in branching])


def best_drawn_tree(forest: LawForest, size: int, depth: int) -> tuple[tuple[int, ...], Tensor]:
    """Of all trees of at most ``size`` nodes and ``depth`` levels that narrow downwards, chain
    included: the branching that is worth most over all places, and what it is worth, (R,).
    """
    taken = {children: accepted_of(forest, children) for children in range(1, WIDEST + 1)}
    shapes = [s for n in range(1, depth + 1) for s in product(taken, repeat=n)]
    shapes = [s for s in shapes if list(s) == sorted(s, reverse=True) and num_nodes(s) <= size]
    found = {s: _from_the_leaves(forest, [taken[children] for children in s]) for s in shapes}
    best = max(shapes, key=lambda shape: float(found[shape].sum()))
    return best, found[best]


def num_nodes(branching: Sequence[int]) -> int:
    """Nodes of a tree in which a node of level ``i`` has ``branching[i]`` children."""
    return sum(prod(branching[: level + 1]) for level in range(len(branching)))


def accepted_of(forest: LawForest, children: int) -> Tensor:
    """`accepted_apart` of a forest's laws."""
    return accepted_apart(forest.target_probs, forest.draft_probs, children)


def accepted_apart(target_probs: Tensor, draft_probs: Tensor, children: int) -> Tensor:
    """The chance that each token is the child that ``reject`` accepts, (E, M), of ``children``
    drawn without replacement from ``draft_probs`` (E, M).

    ``target_probs`` (E, M+1) has one more column, for all tokens that are never drafted.
    """
    taken = torch.zeros_like(draft_probs)

    def judge(wanted: Tensor, law: Tensor, chance: Tensor, drawn: tuple[int, ...]) -> None:
        kept = torch.minimum(wanted[:, :-1], law) * chance[:, None]
        taken.add_(kept)
        if len(drawn) + 1 == children:
            return
        residual = (wanted - torch.nn.functional.pad(law, (0, 1))).clamp(min=0)
        residual, refused = _normalised(residual), law * chance[:, None] - kept  # (E, M)
        for x in set(range(law.shape[1])) - set(drawn):
            rest = law.index_fill(1, torch.tensor([x]), 0)
            judge(residual, _normalised(rest), refused[:, x], (*drawn, x))

    judge(target_probs, draft_probs, torch.ones_like(draft_probs[:, 0]), ())
    return taken


def by_block(forest: LawForest, k: int) -> Tensor:
    """A drawn chain of ``k`` judged by ``block``: the sum of its prefixes' chances to be kept.

    A prefix is drawn *and* kept with ``w(x_1..x_i) = min(w(x_1..x_{i-1}) p(x_i), q(x_1..x_i))``
    (the weight r_i of `block` times q(x_1..x_i)). Token verification has the product of
    ``min(p, q)`` in its place, which is never more.
    """
    p, q = forest.target_probs[:, :-1], forest.draft_probs
    drawn = forest.path_probs(q)  # (E, M)
    kept, above = torch.zeros_like(q), forest.is_root.to(q)  # (E,) weight of the text so far
    for _ in range(k):
        new = torch.minimum(above[:, None] * p, drawn)
        kept, above = kept + new, forest.from_parents(new)
    return forest.per_place(kept)


def by_match(forest: LawForest, nodes: Tensor) -> Tensor:
    """A fixed tree of ``nodes`` (E, M) bool: the target's own chance of every path, added up."""
    return forest.per_place(forest.path_probs(forest.target_probs[:, :-1]) * nodes)


def greedy_chain(forest: LawForest, k: int) -> Tensor:
    """The nodes of the chain of favourites, (E, M) bool."""
    nodes = torch.zeros_like(forest.draft_probs)
    above = forest.is_root.to(nodes)
    for _ in range(k):
        new = torch.zeros_like(nodes)
        new[:, 0] = above  # the first child is the favourite
        nodes, above = nodes + new, forest.from_parents(new)
    return nodes > 0


def best_nodes(forest: LawForest, size: int, depth: int, scores: Tensor | None = None) -> Tensor:
    """The ``size`` nodes of every place with the highest path scores, (E, M) bool: EAGLE-2's tree.

    ``scores`` (E, M) are chances of the single nodes, by default the drafter's. With the target's
    own it is the best fixed tree that there is.
    """
    path = forest.path_probs(forest.graded if scores is None else scores)
    path = path * (forest.depth < depth)[:, None]
    nodes = torch.zeros_like(path)
    for place in range(len(forest.roots)):
        mine = (forest.place == place).nonzero().squeeze(1)
        found = path[mine].flatten().sort(descending=True, stable=True)
        best = found.indices[:size][found.values[:size] > 0]
        nodes[mine[best // path.shape[1]], best % path.shape[1]] = 1
    return nodes > 0


def in_passes(forest: LawForest, size: int, depth: int) -> dict[str, Tensor]:
    """Tokens a step, (R,), of five ways to spend ``depth`` draft passes: chains have as many nodes,
    trees at most ``size``. ``fixed`` drafts are judged by `match`.
    """
    chain = greedy_chain(forest, depth)
    accepted = {
        "greedy chain": by_match(forest, chain),
        "greedy tree": by_match(forest, best_nodes(forest, size, depth)),
        "drawn chain": by_reject(forest, [1] * depth),
        "drawn chain, block": by_block(forest, depth),
        "drawn tree": best_drawn_tree(forest, size, depth)[1],
    }
    return {name: 1 + tokens for name, tokens in accepted.items()}


def _from_the_leaves(forest: LawForest, taken: Sequence[Tensor]) -> Tensor:
    """Accepted tokens (R,) where ``taken[i]`` (E, M) are the chances at a node of level ``i``."""
    below = torch.zeros_like(taken[0][:, 0])  # (E,) accepted below each entry
    for chances in reversed(taken):
        below = (chances * (1 + _of_children(forest, below))).sum(1)
    return below[forest.roots]


def _of_children(forest: LawForest, below: Tensor) -> Tensor:
    """A number of the entries (E,) at each child, (E, M); 0 where nothing is drafted behind it."""
    return torch.where(forest.child >= 0, below[forest.child], 0)


def _normalised(weights: Tensor) -> Tensor:
    """Rows with sum 1; all zeros where there is nothing."""
    mass = weights.sum(1, keepdim=True)
    return torch.where(mass > 0, weights / mass, 0)
