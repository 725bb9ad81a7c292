"""The one door through which every proposal enters the loop: checked for shape, device, law, and
cut to what may count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.tree import ancestors, misplaced, prune


@dataclass(frozen=True, slots=True)
class Admitted:
    """A draft that is safe to score, and per row (B,) what was wrong with the one proposed."""

    FOREIGN: ClassVar[int] = 1  # an id outside the target's vocabulary
    NO_LAW: ClassVar[int] = 2  # probs that are not finite, negative, or do not sum to 1
    NO_TREE: ClassVar[int] = 3  # a parent that is neither -1 nor an earlier node

    draft: Draft
    fault: Tensor  # (B,) 0 or one of these


def admit(draft: Draft, k: int, room: Tensor, vocab_size: int, eos: Tensor) -> Admitted:
    """Cut a draft to what may be committed: no node deeper than ``room`` (B,), none behind an end
    token, none from the first one on that has no proper law.

    All of these keep exactness: they depend on what is already drafted, or on a law before anything
    is drawn from it. Raises ValueError for a draft of the wrong shape.
    """
    draft = _on_device(_shaped(draft, k, room.shape[0]), room.device)
    live = torch.arange(draft.tokens.shape[1], device=room.device) < draft.count[:, None]  # (B, N)
    draft, misplaced = _rooted(draft, live)
    live = live & _useful(draft, room, eos)
    lawful = _lawful(draft)  # (B, N)
    broken = (~lawful & live).any(1)
    live = live & lawful.long().cumprod(1).bool()
    inside = (draft.tokens >= 0) & (draft.tokens < vocab_size)
    foreign = (~inside & live).any(1)
    fault = torch.where(foreign, Admitted.FOREIGN, broken.long() * Admitted.NO_LAW)
    fault = fault.masked_fill(misplaced, Admitted.NO_TREE)
    draft = replace(draft, tokens=draft.tokens.clamp(0, vocab_size - 1), count=live.sum(1))
    return Admitted(_trim(draft if draft.parents is None else prune(draft, live)), fault)


def _rooted(draft: Draft, live: Tensor) -> tuple[Draft, Tensor]:
    """The draft with parents that are safe to follow, and which rows (B,) had others."""
    if draft.parents is None:
        return draft, torch.zeros_like(draft.count, dtype=torch.bool)
    parents = draft.parents.where(live, -1)
    wrong = misplaced(parents)
    return replace(draft, parents=parents.masked_fill(wrong, -1)), wrong.any(1)


def _useful(draft: Draft, room: Tensor, eos: Tensor) -> Tensor:
    """Which nodes (B, N) could be committed: deep enough in the room, and no end token above."""
    is_end = (draft.tokens[..., None] == eos).any(-1)  # (B, N)
    if draft.parents is None:
        depth = torch.arange(1, is_end.shape[1] + 1, device=room.device)
        ended = is_end.cumsum(1) > is_end.long()
    else:
        path = ancestors(draft.parents)[:, 1:, 1:]  # (B, N, N), a node's own entry included
        depth = path.sum(-1)
        ended = (path & is_end[:, None]).sum(-1) > is_end.long()
    return (depth <= room[:, None]) & ~ended


def _shaped(draft: Draft, k: int, num_rows: int) -> Draft:
    if not isinstance(draft, Draft):
        raise ValueError(f"propose must return a Draft, not {type(draft).__name__}.")
    rows, nodes = draft.tokens.shape if draft.tokens.ndim == 2 else (-1, -1)
    if rows != num_rows or nodes > k or draft.count.shape != (num_rows,):
        raise ValueError(
            f"A draft for {num_rows} rows and k = {k} needs tokens ({num_rows}, at most {k}) and "
            f"count ({num_rows},), not {tuple(draft.tokens.shape)} and {tuple(draft.count.shape)}."
        )
    if draft.parents is not None and draft.parents.shape != draft.tokens.shape:
        raise ValueError(
            f"parents must be (B, N) like tokens {tuple(draft.tokens.shape)}, not "
            f"{tuple(draft.parents.shape)}."
        )
    if draft.probs is not None and draft.probs.shape[:2] != draft.tokens.shape:
        raise ValueError(
            f"probs must be (B, N, V) beside tokens {tuple(draft.tokens.shape)}, not "
            f"{tuple(draft.probs.shape)}."
        )
    return draft


def _on_device(draft: Draft, device: torch.device) -> Draft:
    moved = {
        name: value.to(device)
        for name in ("tokens", "count", "parents", "probs", "draft_to_target")
        if (value := getattr(draft, name)) is not None
    }
    moved |= {name: moved[name].long() for name in ("tokens", "count", "parents") if name in moved}
    return replace(draft, **moved)


def _lawful(draft: Draft) -> Tensor:
    if draft.probs is None:
        return torch.ones_like(draft.tokens, dtype=torch.bool)
    total = draft.probs.sum(-1, dtype=torch.float64)  # NaN and inf show up in the sum
    return ((total - 1).abs() < 1e-3) & (draft.probs.amin(-1) >= 0)


def _trim(draft: Draft) -> Draft:
    """Drop columns that no row uses: on the CPU every scored row costs time and reading the count
    is free.

    On an accelerator reading would stall the queue, and graphs want one static shape, so nothing is
    trimmed there.
    """
    if draft.tokens.device.type != "cpu":
        return draft
    width = int(draft.count.max()) if draft.count.numel() else 0
    parents, probs = (x if x is None else x[:, :width] for x in (draft.parents, draft.probs))
    return replace(draft, tokens=draft.tokens[:, :width], parents=parents, probs=probs)
