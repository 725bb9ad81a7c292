"""Traversal verification of sampled trees, from the leaves to the root (a lesson).

Weng et al. 2025 (arXiv 2505.12398): block verification carried over to trees. A path is judged as a
whole, by the weight of its leaf; what a refused leaf leaves over is given to its parent. On the
same trees it accepts at least as much on average as judging token by token. It walks through each
row in Python and reads the host, so it is no rule for production.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft, Scores, Verdict
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.tree import chain_parents
from specdec_lab.decoding.verify import Rule, laws

Weigh = Callable[[float, float, float], float]  # (mass left over, old weight, q(x)) -> new weight


def right_weight(left_over: float, weight: float, draft_prob: float) -> float:
    """What a node's weight becomes when a child of it is refused: S / (S + 1 - a)."""
    room = left_over + 1 - weight
    return left_over / room if room > 0 else 1.0


def traversal_with(weigh: Weigh) -> Rule:
    """The rule that updates weights by ``weigh``; with `right_weight` it is `traversal`."""
    return partial(_judge, weigh)


def _judge(
    weigh: Weigh,
    context: Context,
    draft: Draft,
    scores: Scores,
    sampling: Sampling,
    randomness: Randomness,
) -> Verdict:
    """Rows walk in step: every round asks one coin per row, at the leaf that it stands on."""
    walks = _walks(draft, *laws(context, draft, scores, sampling), weigh)
    for _ in range(draft.tokens.shape[1] + 1):
        leaves = [walk.first_leaf() for walk in walks]
        chances = [walk.chance(leaf) for walk, leaf in zip(walks, leaves, strict=True)]
        asked = torch.tensor(chances, dtype=torch.float64), context.lengths, Lane.ACCEPT
        taken = randomness.coin(*asked, torch.tensor(leaves))  # (B,)
        for walk, leaf, accepted in zip(walks, leaves, taken.tolist(), strict=True):
            if not accepted:
                walk.refuse(leaf)
    ends = [walk.path(walk.first_leaf()) for walk in walks]
    left = torch.stack([walk.laws[walk.first_leaf()] for walk in walks])  # (B, V)
    path = torch.tensor([p + [0] * (draft.tokens.shape[1] - len(p)) for p in ends]).long()
    next_token = randomness.draw(left, context.lengths, Lane.RECOVER)
    return Verdict(path, torch.tensor([len(p) for p in ends]), next_token)


class _Walk:
    """One row: entries 0..N (0 is the root), their weights, laws and children still in play."""

    def __init__(
        self,
        tokens: list[int],
        parents: list[int],
        target_probs: Tensor,
        draft_probs: Tensor,
        weigh: Weigh,
    ) -> None:
        self.tokens, self.parents, self.weigh = tokens, parents, weigh
        self.laws, self.draft_probs = list(target_probs), draft_probs
        self.weights: dict[int, float] = {0: 1.0}
        self.children: list[list[int]] = [[] for _ in range(len(tokens) + 1)]
        for entry, parent in enumerate(parents, start=1):
            self.children[parent + 1].append(entry)

    def first_leaf(self) -> int:
        """Down to the first child each time; a node is weighed when it is first entered."""
        entry = 0
        while self.children[entry]:
            child = self.children[entry][0]
            token, q = self.tokens[child - 1], self.draft_probs[child - 1]
            ratio = float(self.laws[entry][token] / q[token])
            self.weights.setdefault(child, min(1.0, self.weights[entry] * ratio))
            entry = child
        return entry

    def chance(self, leaf: int) -> float:
        """Of being accepted: the root always is."""
        return self.weights[leaf] if leaf else 1.0

    def refuse(self, leaf: int) -> None:
        """Take a leaf away; its parent keeps what the leaf leaves over."""
        parent = self.parents[leaf - 1] + 1
        self.children[parent].remove(leaf)
        q = self.draft_probs[leaf - 1]
        weight = self.weights[parent]
        residual = (weight * self.laws[parent] - q).clamp(min=0)
        left_over = float(residual.sum())
        self.weights[parent] = self.weigh(left_over, weight, float(q[self.tokens[leaf - 1]]))
        if left_over > 0:
            self.laws[parent] = residual / left_over

    def path(self, entry: int) -> list[int]:
        """Drafted nodes from the root down to an entry."""
        return [*self.path(self.parents[entry - 1] + 1), entry - 1] if entry else []


def _walks(draft: Draft, target_probs: Tensor, draft_probs: Tensor, weigh: Weigh) -> list[_Walk]:
    parents = chain_parents(*draft.tokens.shape) if draft.parents is None else draft.parents
    rows = zip(draft.tokens.tolist(), parents.tolist(), draft.count.tolist(), strict=True)
    return [
        _Walk(tokens[:count], above[:count], p, q, weigh)
        for (tokens, above, count), p, q in zip(rows, target_probs, draft_probs, strict=True)
    ]


traversal: Rule = traversal_with(right_weight)
