"""Held-out acceptance by depth: what a draft would do on texts that it was not trained on.

No decoding is needed. Where all drafted tokens before it equal the text, a draft has read nothing
but the text; so one pass over the text tells, for every place and depth, whether the next drafted
token would be accepted (ALGORITHMS calls it replay).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from specdec_lab.training.losses import overlap
from specdec_lab.training.methods import Method
from specdec_lab.training.states import Batch


@torch.no_grad()
def held_out(method: Method, batches: Iterable[Batch], depth: int | None = None) -> dict:
    """Acceptance of greedy drafts and overlap of laws, each a list by depth, on ``batches``.

    ``alpha``: the share of drafted argmax tokens that are the target's argmax, where all drafted
    before them are the text; on greedy text this is the acceptance of greedy decoding. ``overlap``:
    the mean of sum min(p, q) at temperature 1 and at every judged place. ``tau``: 1 plus the sum of
    the products of alpha. ``judged``: places by depth that alpha is the mean of. ``cap``: the most
    that the draft vocabulary lets alpha and overlap be at depth 0 (`DraftVocab.coverage`).
    """
    depth = depth or method.depth
    counts = torch.zeros(4, depth, dtype=torch.float64)  # reached, accepted, judged, overlap
    cap = torch.zeros(2, dtype=torch.float64)
    method.module.eval()
    for batch in batches:
        counts += _counts(method, batch, depth)
        cap += _cap(batch)
    method.module.train()
    reached, accepted, judged, both = counts.tolist()
    alpha = [a / max(r, 1) for a, r in zip(accepted, reached, strict=True)]
    survival = torch.tensor(alpha).cumprod(0)
    return {
        "alpha": alpha,
        "overlap": [o / max(j, 1) for o, j in zip(both, judged, strict=True)],
        "tau": 1 + float(survival.sum()),
        "judged": [int(r) for r in reached],
        "cap": [float(number) / max(judged[0], 1) for number in cap],
    }


def _counts(method: Method, batch: Batch, depth: int) -> torch.Tensor:
    """(4, depth): places reached, accepted there, places judged, and the sum of overlaps there."""
    counts = torch.zeros(4, depth, dtype=torch.float64)
    on_text = torch.ones_like(batch.token_at(0), dtype=torch.bool)  # (N,)
    for d, logits in enumerate(method.logits(batch, depth)):
        law, judged = batch.judged_at(d)
        best = logits.argmax(-1)  # (N,) draft ids
        reached = on_text & judged
        accepted = reached & (best == law.ids[:, 0])
        shares = overlap(logits, law)[judged]
        counts[:, d] = torch.stack(
            [x.sum().double().cpu() for x in (reached, accepted, judged, shares)]
        )
        on_text = reached & (method.vocab.to_target(best) == batch.token_at(d + 1))
    return counts


def _cap(batch: Batch) -> torch.Tensor:
    """(2,): places whose most probable token can be drafted, and the mass that can, added up."""
    law, judged = batch.judged_at(0)
    law = law[judged]
    mass = law.covered.sum(-1) / law.probs.sum(-1)  # of the tokens listed
    return torch.stack([(law.ids[:, 0] >= 0).sum().double(), mass.sum().double()]).cpu()
