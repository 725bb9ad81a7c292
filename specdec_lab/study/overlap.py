"""Target and draft side by side at real places of a text: what the pictures of p and q show."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target


def logits_behind(target: Target, ids: Sequence[int], num_places: int = 1) -> Tensor:
    """The model's logits behind each of the last ``num_places`` tokens of a text, from one forward.

    Float64 numbers (num_places, V) whatever the precision of the model, so that what is computed
    from them adds no rounding worth naming.
    """
    tokens = torch.tensor([list(ids)], device=target.device)  # (1, L)
    first = tokens.shape[1] - num_places
    cache = target.start(1, tokens.shape[1])
    target.prefill(cache, tokens[:, :first], torch.tensor([first], device=target.device))
    behind = tokens[:, first + 1 :]  # (1, num_places - 1), judged as if they were drafted
    count = torch.full_like(tokens[:, 0], num_places - 1)
    return target.score(cache, tokens[:, first], Draft(behind, count)).logits[0].double()


def logits_along(target: Target, ids: Sequence[int], num_places: int, rows: int = 8) -> Tensor:
    """As `logits_behind`, but in forwards of ``rows`` tokens: few enough for low-bit products."""
    tokens = torch.tensor([list(ids)], device=target.device)  # (1, L)
    first = tokens.shape[1] - num_places
    cache = target.start(1, tokens.shape[1])
    target.prefill(cache, tokens[:, :first], torch.tensor([first], device=target.device))
    pieces = []
    for read in tokens[:, first:].split(rows, dim=1):
        count = torch.full_like(read[:, 0], read.shape[1])
        pieces.append(target.score(cache, read[:, 0], Draft(read[:, 1:], count - 1)).logits[0])
        target.keep(cache, None, count)
    return torch.cat(pieces).double()


def most_probable(target_probs: Tensor, draft_probs: Tensor, number: int = 12) -> list[int]:
    """The ``number`` tokens that either law (V,) finds most probable, by the larger of the two."""
    return torch.maximum(target_probs, draft_probs).topk(number).indices.tolist()


def top_entries(values: Tensor, ids: Sequence[int]) -> list[float]:
    """``values`` (V,) at ``ids``, and one more entry for the sum of all others."""
    others = values.index_fill(0, torch.tensor(list(ids), device=values.device), 0)
    return [*values[list(ids)].tolist(), float(others.sum())]


def rejection_parts(target_probs: Tensor, draft_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of the emitted law (V,) under the ratio rule: accepted and recovered mass.

    Accepted is min(p, q), recovered the chance of a refusal times the residual. Their sum is p.
    """
    accepted = torch.minimum(target_probs, draft_probs)
    missing = (target_probs - draft_probs).clamp(min=0)
    refusal = 1 - accepted.sum()
    return accepted, refusal * missing / missing.sum() if missing.sum() > 0 else missing


def sweep_temperature(
    target_logits: Tensor,
    draft_logits: Tensor,
    ids: Sequence[int],
    temperatures: Sequence[float],
) -> list[dict]:
    """For each temperature the laws, both halves and the acceptance, ready to be recorded.

    Everything is computed from full logits (V,); only then are all tokens but ``ids`` added up.
    """
    rows = []
    for temperature in temperatures:
        sampling = Sampling(temperature=temperature)
        target_probs, draft_probs = sampling.probs(target_logits), sampling.probs(draft_logits)
        accepted, recovered = rejection_parts(target_probs, draft_probs)
        rows.append(
            {
                "temperature": temperature,
                "target_probs": top_entries(target_probs, ids),
                "draft_probs": top_entries(draft_probs, ids),
                "accepted": top_entries(accepted, ids),
                "recovered": top_entries(recovered, ids),
                "acceptance": float(accepted.sum()),
            }
        )
    return rows
