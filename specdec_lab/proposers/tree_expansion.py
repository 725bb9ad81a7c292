"""Growing candidate trees with any drafter that has probabilities.

The drafter says two things: the law of the token behind the text, and ``extend(fed, width)``, the
laws behind the last ``width`` nodes of ``fed``, (B, width, Vd). ``fed`` is the tree of the nodes
that it has been asked about so far, as a `Draft` (tokens and parents, both (B, M)): those before
the last ``width`` are the ones of earlier calls.

`expand_and_rerank` keeps the most probable nodes: a fixed function of the text, to be verified with
``match``. `sample_tree` draws the children of a node without replacement: to be verified with
``reject``, which needs the laws that go with it. `draft_tree` does one or the other from logits,
under the sampling of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import History, Sampling, history_of
from specdec_lab.decoding.tree import prune

if TYPE_CHECKING:
    from specdec_lab.proposers.draft_vocab import DraftVocab

Extend = Callable[[Draft, int], Tensor]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """How far a drafter looks: ``width`` nodes on each of ``depth`` levels are asked for as many
    children (`expand_and_rerank`), or a node of level ``i`` draws ``branching[i]`` of them
    (`sample_tree`). How many nodes are drafted is the request's ``k``.
    """

    width: int = 4
    depth: int = 4
    branching: tuple[int, ...] = (3, 2, 1, 1)

    @classmethod
    def checked(cls, width: int, depth: int, branching: Sequence[int]) -> TreeShape:
        """The shape; ValueError unless there is a level, and every number is from 1 to 16."""
        width = whole_number("width", width, least=1, most=16)
        depth = whole_number("depth", depth, least=1, most=16)
        if not branching:
            raise ValueError("branching must name the children of a node for one level at least.")
        for number in branching:
            whole_number("branching", number, least=1, most=16)
        return cls(width, depth, tuple(branching))

    @property
    def deepest(self) -> int:
        """The length of the longest path."""
        return max(self.depth, len(self.branching))

    @property
    def most_read(self) -> int:
        """Nodes that the drafter is asked about at most."""
        sampled = sum(accumulate(self.branching, int.__mul__))
        return max(self.width * self.depth, sampled)


def draft_tree(
    first: Tensor,
    extend: Extend,
    context: Context,
    k: int,
    sampling: Sampling,
    randomness: Randomness,
    shape: TreeShape,
    *,
    vocab_size: int,
    vocab: DraftVocab | None = None,
    greedy: bool = False,
) -> Draft:
    """At most ``k`` nodes: the most probable ones if ``greedy`` or if the request is, else drawn.

    ``first`` (B, Vd) and what ``extend`` returns are logits, over ``vocab`` or else all
    ``vocab_size`` ids of the target.
    """
    ids = None if vocab is None else vocab.draft_to_target
    greedy = greedy or sampling.is_greedy
    own = _graded(sampling) if greedy else sampling
    own = own if vocab is None else vocab.sampling(own)

    def law(logits: Tensor, fed: Draft) -> Tensor:
        history = history_of(sampling, context, fed, vocab_size)
        history = history if vocab is None else vocab.history(history)
        return own.probs(logits, _newest(history, logits.shape[1]))

    def laws_behind(fed: Draft, width: int) -> Tensor:
        return law(extend(fed, width), fed)

    root = law(first[:, None], Draft.empty(len(first), first.device)).squeeze(1)
    if greedy:
        how = {"size": k, "width": shape.width, "depth": min(shape.depth, k)}
        return expand_and_rerank(root, laws_behind, **how, draft_to_target=ids)
    how = {"branching": shape.branching[:k], "lengths": context.lengths, "randomness": randomness}
    return _cut(sample_tree(root, laws_behind, **how, draft_to_target=ids), k)


def _graded(sampling: Sampling) -> Sampling:
    """The sampling by which nodes are compared: a greedy one would know but one child a node."""
    return replace(sampling, temperature=1.0, top_k=None) if sampling.is_greedy else sampling


def _newest(history: History | None, width: int) -> History | None:
    """The counts in front of the children of the last ``width`` nodes, each (B, width, Vd)."""
    return history and History(history.total[:, -width:], history.output[:, -width:])


def _cut(draft: Draft, size: int) -> Draft:
    """The first ``size`` nodes: a tree, as parents stand before their children."""
    return replace(
        draft,
        tokens=draft.tokens[:, :size],
        count=draft.count.clamp(max=size),
        parents=draft.parents[:, :size],
        probs=draft.probs[:, :size],
    )


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Every node that was scored, in the order in which they came up: all (B, S)."""

    tokens: Tensor
    parents: Tensor
    scores: Tensor  # float64, the product of draft probabilities along the path

    def plus(self, tokens: Tensor, parents: Tensor, scores: Tensor) -> _Candidates:
        return _Candidates(
            torch.cat((self.tokens, tokens), 1),
            torch.cat((self.parents, parents), 1),
            torch.cat((self.scores, scores), 1),
        )


def expand_and_rerank(
    first: Tensor,
    extend: Extend,
    *,
    size: int,
    width: int,
    depth: int,
    draft_to_target: Tensor | None = None,
) -> Draft:
    """The dynamic tree of EAGLE-2 (Li et al. 2024, arXiv 2406.16858, section 4): at most ``size``
    nodes.

    ``first`` (B, Vd) and what ``extend`` returns are probabilities. *Expand*: on each of ``depth``
    levels the ``width`` nodes with the highest score are asked for their ``width`` most probable
    children; a score is the product of the probabilities along the path. *Rerank*: of all nodes
    scored, the best ``size`` are the draft, the likeliest first. As no child scores above its
    parent, they hang together. ``draft_to_target`` (Vd,) maps the columns to target ids.
    """
    width = min(width, first.shape[-1])
    scores, columns = first.topk(width, dim=-1)  # (B, K)
    tokens, root = _ids(columns, draft_to_target), torch.full_like(columns, -1)
    found = _Candidates(tokens, root, scores.double())
    frontier = torch.arange(width, device=first.device).expand_as(columns)  # (B, K) candidates
    fed = Draft(tokens, torch.full_like(columns[:, 0], width), parents=root)
    for level in range(1, depth):
        more, columns = extend(fed, width).topk(width, dim=-1)  # (B, K, K)
        scores = found.scores.gather(1, frontier)[..., None] * more.clamp(max=1)
        parents = frontier.repeat_interleave(width, dim=1)  # (B, K * K)
        tokens = _ids(columns, draft_to_target).flatten(1)
        best = scores.flatten(1).topk(width, dim=1).indices  # (B, K)
        frontier = found.tokens.shape[1] + best
        found = found.plus(tokens, parents, scores.flatten(1))
        above = (level - 1) * width + best.div(width, rounding_mode="floor")
        fed = _appended(fed, tokens.gather(1, best), above)
    return _best(found, size)


def sample_tree(
    first: Tensor,
    extend: Extend,
    *,
    branching: Sequence[int],
    lengths: Tensor,
    randomness: Randomness,
    draft_to_target: Tensor | None = None,
) -> Draft:
    """A tree in which every node of level ``i`` has ``branching[i]`` children, drawn without
    replacement in the order in which they stand.

    ``first`` (B, Vd) and what ``extend`` returns are probabilities; ``lengths`` (B,) are those of
    the contexts. ``probs`` holds what each node was drawn from: the law behind its parent without
    the siblings drawn before it, normalised again (Jeon et al. 2024, arXiv 2402.14160). Where
    nothing is left to draw there is no node.
    """
    laws = first[:, None]  # (B, F, Vd), of the nodes on the last level
    fed = Draft.empty(len(first), first.device)
    fed = replace(fed, parents=fed.tokens, probs=first[:, None][:, :0])
    alive = torch.ones_like(fed.count, dtype=torch.bool)[:, None]  # (B, F)
    live = alive[:, :0]  # (B, M)
    for level, width in enumerate(branching):
        if level:
            laws = extend(fed, laws.shape[1] * branching[level - 1])
        drawn = _draw_apart(laws, width, lengths, randomness, fed.tokens.shape[1])
        columns, probs, exists = (x.flatten(1, 2) for x in drawn)
        alive = alive.repeat_interleave(width, dim=1) & exists
        start = fed.tokens.shape[1] - laws.shape[1]  # of the last level; -1 is the root
        above = torch.arange(start, fed.tokens.shape[1], device=first.device)
        above = above.repeat_interleave(width).expand_as(columns)
        fed = _appended(fed, _ids(columns, draft_to_target), above, probs)
        live = torch.cat((live, alive), 1)
    return prune(replace(fed, draft_to_target=draft_to_target), live)


def _ids(columns: Tensor, draft_to_target: Tensor | None) -> Tensor:
    return columns if draft_to_target is None else draft_to_target[columns]


def _appended(fed: Draft, tokens: Tensor, parents: Tensor, probs: Tensor | None = None) -> Draft:
    return replace(
        fed,
        tokens=torch.cat((fed.tokens, tokens), 1),
        count=fed.count + tokens.shape[1],
        parents=torch.cat((fed.parents, parents), 1),
        probs=None if probs is None else torch.cat((fed.probs, probs), 1),
    )


def _best(found: _Candidates, size: int) -> Draft:
    """The candidates with the highest scores; equal ones in the order in which they came up."""
    ranked, order = found.scores.sort(dim=1, descending=True, stable=True)
    number = order.argsort(dim=1)  # where each candidate stands now
    number = torch.nn.functional.pad(number, (1, 0), value=-1)  # of -1, 0, 1, ...
    chosen = order[:, :size]
    return Draft(
        tokens=found.tokens.gather(1, chosen),
        count=(ranked[:, :size] > 0).sum(1),
        parents=number.gather(1, found.parents.gather(1, chosen) + 1),
    )


def _draw_apart(
    laws: Tensor, width: int, lengths: Tensor, randomness: Randomness, first_place: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``width`` different columns of each of ``laws`` (B, F, Vd): columns (B, F, width), the laws
    they were drawn from (B, F, width, Vd), and whether there was anything to draw (B, F, width).
    """
    position = lengths[:, None].expand(laws.shape[:2])
    node = first_place + width * torch.arange(laws.shape[1], device=laws.device)  # (F,)
    columns, probs, exists = [], [], []
    law, left = laws, torch.ones_like(laws[..., 0], dtype=torch.bool)
    for place in range(width):
        column = randomness.draw(law, position, Lane.DRAFT, node + place)  # (B, F)
        columns.append(column)
        probs.append(law)
        exists.append(left)
        rest = law.scatter(-1, column[..., None], 0)
        mass = rest.sum(-1, keepdim=True)  # (B, F, 1)
        law = torch.where(mass > 0, rest / mass, laws)
        left = left & (mass.squeeze(-1) > 0)
    return torch.stack(columns, 2), torch.stack(probs, 2), torch.stack(exists, 2)
