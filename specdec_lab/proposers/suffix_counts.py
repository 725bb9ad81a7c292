"""Counting continuations: what followed the places that look like the present, path and tree.

A *place* is a position of some text that ends the same ``m`` tokens as the row does; what stands
behind it is its *continuation*. The places of a row are given as ``matched`` (B, R), their match
lengths, and ``following`` (B, R, K), their continuations, -1 from where nothing follows on. The
places of a row stand in order of preference, the longest match first.

The counts are those of Arctic's suffix tree (Oliaro et al., arXiv 2411.04975) but for one choice:
only what *has* a next token is counted, so the chances of the children of a node sum to 1. The
row's own tail has none: a lone earlier place gives the chance 1, where Arctic says 1/2.

Letters beside those of the records: ``R`` places, ``M`` match lengths, ``K`` the longest draft.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROWTH, ESCAPE = 2.0, 4.0  # fewest forwards for the nodes they draft, on the dev prompts


@dataclass(frozen=True, slots=True)
class Path:
    """The most likely continuation of every row, and its score."""

    tokens: Tensor  # (B, K)
    count: Tensor  # (B,)
    score: Tensor  # (B,) float64: the expected number of accepted tokens if the counts were laws


@dataclass(frozen=True, slots=True)
class Tree:
    """The most likely nodes of the tree of continuations of every row, the likeliest first."""

    tokens: Tensor  # (B, N)
    parents: Tensor  # (B, N), -1 for a child of the row's last token
    probs: Tensor  # (B, N) float64, the chance of the whole path down to the node
    count: Tensor  # (B,)


def best_path(
    matched: Tensor, following: Tensor, lengths: Tensor, budgets: Tensor, min_token_prob: float
) -> Path:
    """The path with the highest score over all match lengths, ties to the longer match.

    For each of ``lengths`` (M,), the places that match at least so far vote: at every depth the
    most common next token wins (ties: the token of the place that is preferred), and those who
    said another token are out. The path ends at its budget (M,), or before the token whose chance,
    the product of vote shares, is below ``min_token_prob``. The score sums the chances.
    """
    num_places, depth = following.shape[1:]
    said = following.transpose(1, 2).contiguous()  # (B, K, R)
    same = (said[..., None] == said[..., None, :]).float()  # (B, K, R, R)
    exists = (said >= 0).float()
    preference = torch.arange(num_places - 1, -1, -1.0, device=following.device)
    alive = (matched[:, None] >= lengths[:, None]).float()  # (B, M, R)
    tokens, ballots, voters = [], [], []
    for place in range(depth):
        alive = alive * exists[:, place, None]
        votes = alive @ same[:, place]  # (B, M, R)
        ballot, winner = (torch.add(preference, votes, alpha=num_places) * alive).max(-1)  # (B, M)
        token = said[:, place].gather(1, winner)
        ballots.append(ballot)
        voters.append(alive.sum(-1))
        tokens.append(token)
        alive = alive * (said[:, place, None] == token[..., None])
    votes = (torch.stack(ballots, -1) / num_places).floor().double()  # (B, M, K)
    chance = (votes / torch.stack(voters, -1).clamp(min=1)).cumprod(-1)
    within = torch.arange(depth, device=following.device) < budgets[:, None]  # (M, K)
    drafted = within & (votes > 0) & (chance >= min_token_prob)
    drafted = drafted.long().cumprod(-1)
    score = (chance * drafted).cumsum(-1)[..., -1]  # (B, M)
    best = _last_of_the_best(score)  # (B, 1)
    pick = best[..., None].expand(-1, 1, depth)
    return Path(
        torch.stack(tokens, -1).gather(1, pick).squeeze(1),
        drafted.sum(-1).gather(1, best).squeeze(1),
        score.gather(1, best).squeeze(1),
    )


def count_tree(
    matched: Tensor, following: Tensor, length: int, size: int, min_token_prob: float
) -> Tree:
    """The ``size`` likeliest nodes of the tree of continuations of the places that match at least
    ``length`` tokens: `weighted_tree` with one vote each.
    """
    return weighted_tree((matched >= length).double(), following, size, min_token_prob)


def blended_tree(
    matched: Tensor,
    following: Tensor,
    size: int,
    min_token_prob: float,
    growth: float = GROWTH,
    escape: float = ESCAPE,
) -> Tree:
    """The ``size`` likeliest nodes over all match lengths at once.

    A place counts ``growth`` times as much for every token that it matches, those on the way down
    included; against all of them stands the weight ``escape`` of what no place has said (the idea
    of prediction by partial matching, Cleary and Witten 1984). So long matches lead, short ones
    add branches, and a lone short match is not believed.
    """
    weights = torch.where(matched > 0, growth ** matched.double(), 0)  # (B, R)
    deeper = torch.arange(following.shape[2], device=following.device)
    return weighted_tree(weights, following, size, min_token_prob, escape * growth**-deeper)


def weighted_tree(
    weights: Tensor,
    following: Tensor,
    size: int,
    min_token_prob: float,
    escape: Tensor | float = 0.0,
) -> Tree:
    """The ``size`` likeliest nodes of the tree of continuations, place r having ``weights[:, r]``
    (B, R) votes and nobody at all ``escape`` votes, a number or one per depth (K,).

    A node is a beginning that continuations share; its chance is the product of vote shares along
    the way. A parent stands before its children; equal chances: the shallower node, then the one
    of the preferred place. Nodes below ``min_token_prob`` are left out.
    """
    rows, num_places, depth = following.shape
    votes = weights[:, None, None]  # (B, 1, 1, R)
    exists = (following >= 0).transpose(1, 2).long().cumprod(1)  # (B, K, R)
    same = (following[:, :, None] == following[:, None]).permute(0, 3, 1, 2)  # (B, K, R, R)
    shared = (same * exists[:, :, None]).cumprod(1) * votes  # (B, K, R, R)
    before = torch.cat([torch.ones_like(shared[:, :1]) * votes, shared[:, :-1]], 1)
    asked = (before * exists[:, :, None]).sum(-1)  # (B, K, R), all that have a token there
    asked = asked + torch.as_tensor(escape, device=asked.device).expand(depth)[:, None]
    chance = torch.where(asked > 0, shared.sum(-1) / asked, 0).cumprod(1)
    order = torch.arange(num_places, device=following.device)
    first = torch.where(shared > 0, order, num_places).amin(-1)  # (B, K, R), who speaks for all
    voting = weights[:, None] > 0  # (B, 1, R)
    is_node = (first == order) & (exists > 0) & voting & (chance >= min_token_prob)
    ranked, chosen = (chance * is_node).reshape(rows, -1).sort(dim=1, descending=True, stable=True)
    size = min(size, depth * num_places)
    index = chosen[:, :size]  # (B, N), places of the table depth x R
    standing = chosen.argsort(1)  # the inverse: where each of them stands among the nodes
    above = torch.cat([torch.full_like(first[:, :1], -1), first[:, :-1]], 1).reshape(rows, -1)
    parent = above.gather(1, index)  # (B, N), the place that speaks for the parent
    level = index.div(num_places, rounding_mode="floor")
    parents = standing.gather(1, ((level - 1) * num_places + parent).clamp(min=0))
    kept = ranked[:, :size] > 0
    return Tree(
        following.transpose(1, 2).reshape(rows, -1).gather(1, index) * kept,
        torch.where(kept & (level > 0), parents, -1),
        ranked[:, :size],
        kept.sum(1),
    )


def _last_of_the_best(score: Tensor) -> Tensor:
    """Index (B, 1) of the highest score (B, M), the last such one."""
    order = torch.arange(score.shape[1], device=score.device)
    return torch.where(score == score.amax(1, keepdim=True), order, -1).amax(1, keepdim=True)
