"""The one door through which every proposal enters the loop: checked for shape, device, law, and
cut to what may count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from specdec_lab.decoding.records import Draft


@dataclass(frozen=True, slots=True)
class Admitted:
    """A draft that is safe to score, and per row (B,) what was wrong with the one proposed."""

    FOREIGN: ClassVar[int] = 1  # an id outside the target's vocabulary
    NO_LAW: ClassVar[int] = 2  # probs that are not finite, negative, or do not sum to 1

    draft: Draft
    fault: Tensor  # (B,) 0, FOREIGN or NO_LAW


def admit(draft: Draft, k: int, room: Tensor, vocab_size: int, eos: Tensor) -> Admitted:
    """Cut a draft to ``room`` (B,) tokens a row, to its first end token, and to the places that
    have a proper law.

    All of these keep exactness: they depend on what is already drafted, or on a law before anything
    is drawn from it. Raises ValueError for a draft of the wrong shape.
    """
    draft = _on_device(_shaped(draft, k, room.shape[0]), room.device)
    place = torch.arange(draft.tokens.shape[1], device=room.device)  # (N,)
    count = torch.minimum(draft.count.clamp(min=0, max=draft.tokens.shape[1]), room)
    lawful = _lawful(draft)  # (B, N)
    broken = (~lawful & (place < count[:, None])).any(1)
    count = torch.minimum(count, lawful.long().cumprod(1).sum(1))
    is_end = (draft.tokens[..., None] == eos).any(-1)
    ends = torch.where(is_end, place + 1, draft.tokens.shape[1])
    count = torch.minimum(count, ends.amin(1)) if draft.tokens.shape[1] else count
    inside = (draft.tokens >= 0) & (draft.tokens < vocab_size)
    foreign = (~inside & (place < count[:, None])).any(1)
    fault = torch.where(foreign, Admitted.FOREIGN, broken.long() * Admitted.NO_LAW)
    tokens = draft.tokens.clamp(0, vocab_size - 1)
    return Admitted(_trim(replace(draft, tokens=tokens, count=count)), fault)


def _shaped(draft: Draft, k: int, num_rows: int) -> Draft:
    if not isinstance(draft, Draft):
        raise ValueError(f"propose must return a Draft, not {type(draft).__name__}.")
    rows, nodes = draft.tokens.shape if draft.tokens.ndim == 2 else (-1, -1)
    if rows != num_rows or nodes > k or draft.count.shape != (num_rows,):
        raise ValueError(
            f"A draft for {num_rows} rows and k = {k} needs tokens ({num_rows}, at most {k}) and "
            f"count ({num_rows},), not {tuple(draft.tokens.shape)} and {tuple(draft.count.shape)}."
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
    moved["tokens"], moved["count"] = moved["tokens"].long(), moved["count"].long()
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
    probs = None if draft.probs is None else draft.probs[:, :width]
    return replace(draft, tokens=draft.tokens[:, :width], probs=probs)
