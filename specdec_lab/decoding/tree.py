"""Candidate trees: from parents to depths, ancestors and paths. A chain is the simplest tree.

The drafted nodes of a row are numbered 0..N-1. The parent of a node is the number of an *earlier*
node, or -1 for a child of the pending token, which is the root. So parents stand before their
children, and siblings stand in the order in which they were drafted (verification without
replacement needs that order).

Scores, and everything here with N+1 entries, count the root in as entry 0: drafted node ``i`` is
entry ``i + 1``. All of it is tensor operations: rows of a batch are different trees, and nothing is
read on the host.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specdec_lab.decoding.records import Draft


def chain_parents(batch_size: int, num_nodes: int, device: torch.device | str = "cpu") -> Tensor:
    """The parents of a chain written as a tree: -1, 0, 1, ... in every row, (B, N)."""
    return (torch.arange(num_nodes, device=device) - 1).expand(batch_size, -1)


def ancestors(parents: Tensor) -> Tensor:
    """Who lies on whose path: entry (i, j) says that j is i itself or above it, (B, N+1, N+1) bool.

    ``parents`` (B, N) must be valid (see `misplaced`). This is the attention mask of a tree: a node
    sees the committed text, its ancestors and itself. Paths double in length with every product, so
    log2(N) of them reach the root.
    """
    num_nodes = parents.shape[1]
    entry = torch.arange(num_nodes + 1, device=parents.device)
    above = torch.nn.functional.pad(parents + 1, (1, 0))  # (B, N+1), the root above itself
    seen = (entry == above[..., None]) | (entry == entry[:, None])  # (B, N+1, N+1)
    for _ in range(max(num_nodes - 1, 0).bit_length()):
        seen = (seen.float() @ seen.float()) > 0
    return seen


def depths(seen: Tensor) -> Tensor:
    """Depth of every entry, (B, N+1) from its `ancestors`: 0 for the root."""
    return seen.sum(-1) - 1


def path_to(seen: Tensor, end: Tensor) -> Tensor:
    """The drafted nodes from the root down to entry ``end`` (B,), in order: (B, N).

    As many of them count as ``end`` is deep; what stands behind means nothing.
    """
    row = end[:, None, None].expand(-1, 1, seen.shape[-1])
    beside = ~seen.gather(1, row).squeeze(1)[:, 1:]  # (B, N)
    return beside.long().argsort(dim=1, stable=True)


def misplaced(parents: Tensor) -> Tensor:
    """Where a parent is neither -1 nor an earlier node, (B, N) bool."""
    place = torch.arange(parents.shape[1], device=parents.device)
    return (parents < -1) | (parents >= place)


def prune(draft: Draft, live: Tensor) -> Draft:
    """The tree of the nodes that are ``live`` (B, N), moved together in their order.

    With a node its ancestors must be live. ``count`` becomes the number of live nodes.
    """
    draft = replace(draft, count=live.sum(1))
    if live.device.type == "cpu" and not bool((live.long().diff(dim=1) > 0).any()):
        return draft  # nothing to move: reading that costs nothing here, moving laws does
    draft = reorder(draft, (~live).long().argsort(dim=1, stable=True))
    kept = torch.arange(live.shape[1], device=live.device) < draft.count[:, None]
    return replace(draft, parents=draft.parents.where(kept, -1))


def reorder(draft: Draft, order: Tensor) -> Draft:
    """The same tree with its nodes numbered anew: ``order`` (B, N) names the old numbers in their
    new order, which must leave parents in front of their children.
    """
    number = torch.nn.functional.pad(order.argsort(dim=1), (1, 0), value=-1)  # of -1, 0, 1, ...
    probs = draft.probs
    if probs is not None:
        probs = probs.gather(1, order[..., None].expand(-1, -1, probs.shape[2]))
    return replace(
        draft,
        tokens=draft.tokens.gather(1, order),
        parents=number.gather(1, draft.parents + 1).gather(1, order),
        probs=probs,
    )
