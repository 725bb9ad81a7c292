"""A draft model that writes trees: EAGLE-2's dynamic tree, or children drawn without replacement.

Li et al. 2024 (arXiv 2406.16858) and Jeon et al. 2024 (arXiv 2402.14160), over the models of
`DraftModel`. A level of the tree is one forward of the draft over all of its nodes, so a tree costs
``depth`` forwards with a few rows each, where a chain of k costs k with one row.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.tree import ancestors
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.tree_expansion import TreeShape, draft_tree


class DraftTree(DraftModel):
    """Drafts trees of ``k`` nodes with a model of its own.

    ``model`` and ``drafting`` are as in `DraftModel`. Greedy, the ``width`` most probable nodes of
    each of ``depth`` levels are expanded and the best k kept; else a node of level ``i`` draws
    ``branching[i]`` children. What was read for a tree is forgotten: the next step reads the
    accepted path again, with the token behind it, in one forward. Raises ValueError for a model
    with another tokenizer and for a shape that is none.
    """

    def __init__(
        self,
        target: Target,
        model: str | os.PathLike | Target = "int4",
        drafting: str = "probabilistic",
        width: int = 3,
        depth: int = 4,
        branching: tuple[int, ...] = (3, 2, 1, 1),
        num_speculative_tokens: int = 12,
    ) -> None:
        super().__init__(target, model, drafting, num_speculative_tokens)
        self.shape = TreeShape.checked(width, depth, branching)
        self.catch_up = self.shape.deepest + 1  # the accepted path and the token behind it

    def start(self, batch_size: int, max_length: int) -> None:
        """An empty cache with room for a tree behind the longest text."""
        super().start(batch_size, max_length + self.shape.most_read)

    @torch.no_grad()
    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """At most ``k`` nodes a row, with their laws (B, k, V) unless they are greedy."""
        if self._cache is None:
            raise ValueError("A draft model has to be told of the prompt: call start and observe.")
        if k == 0:
            return Draft.empty(len(context.lengths), context.lengths.device)
        first = self._over_target_ids(self._catch_up(context))  # (B, V)
        return draft_tree(
            first.to(context.lengths.device),
            self._extend,
            context,
            k,
            sampling,
            randomness,
            self.shape,
            vocab_size=self.vocab_size,
            greedy=self.drafting == "greedy",
        )

    def _extend(self, fed: Draft, width: int) -> Tensor:
        """Logits (B, width, V) behind the last ``width`` nodes, on the device of ``fed``."""
        nodes = self._readable(fed.tokens[:, -width:])  # (B, width)
        seen = ancestors(fed.parents.to(nodes.device))[:, -width:, 1:]  # (B, width, M)
        inputs = seen.shape[2], nodes, seen
        (logits,) = self._steps.run(self._tree_step, self._cache, *inputs)
        return self._over_target_ids(logits).to(fed.tokens.device)

    def _tree_step(self, cache: KVCache, nodes: Tensor, seen: Tensor) -> tuple[Tensor]:
        states, _ = self.model.model(nodes, cache, seen=seen)
        return (self.model.model.head(states),)
