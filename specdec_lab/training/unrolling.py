"""A feature head over a whole text at once, read as it will be when it drafts.

When a head drafts, its first step reads the target's true states; every later one reads what the
step before it wrote. EAGLE-3 (Li et al. 2025, arXiv 2503.01840) calls training it so "training-time
test": step s runs for all places i of the text in parallel, on the true token i + 1 + s, at
position i + s, and sees

    keys of step 0 at places up to i    the true states, as in the cache of a drafting head
    keys of steps 1 to s at place i     its own chain

So s steps cost s times one, although each of the places has a chain of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_lab.decoding.transformer import Layout, layout_of
from specdec_lab.proposers.feature_head import FeatureHead
from specdec_lab.training.states import Batch


class GrowingKeys:
    """The keys and values of every step so far, with their gradients: what a cache is to a text.

    It has what a layer asks of a `KVCache`; what a layer writes comes behind all that it wrote
    before.
    """

    alike = False  # no row has to come out the same in other company

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._steps: list[Tensor] = []  # each (B, 2 * kv_heads, N, head_dim)

    def write(self, layer: int, places: Tensor | None, keys_values: Tensor) -> None:
        """Add ``keys_values`` (B * N, 2 * kv_heads, head_dim), row by row; there are no places."""
        rows = keys_values.unflatten(0, (self.batch_size, -1))  # (B, N, 2 * kv_heads, head_dim)
        self._steps.append(rows.transpose(1, 2))

    def read(self, layer: int, num_keys: int) -> tuple[Tensor, Tensor]:
        """All keys and all values, each (B, kv_heads, keys, head_dim)."""
        keys, values = torch.cat(self._steps, dim=2).chunk(2, dim=1)
        return keys, values


def unroll(head: FeatureHead, batch: Batch, depth: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each of ``depth`` steps what ``head.read`` gives at every anchor of ``batch``: the next
    features and the states for its head, each (N, H).

    Steps behind the first are run from the first anchor on: nobody drafts from a prompt.
    """
    rows, places = batch.anchors()
    batch_size, length = batch.tokens.shape
    first = int(places.min()) if len(places) else 0
    read = torch.arange(length - 1, device=places.device)  # places that have a token behind them
    keys = GrowingKeys(batch_size)
    features = head.features(batch.hidden)[:, :-1]  # (B, P, H)
    for step in range(depth):
        start = 0 if step == 0 else first
        features = features[:, start - length + 1 :].to(head.embed.weight.dtype)  # autocast
        tokens = batch.tokens[:, (read[start:] + 1 + step).clamp(max=length - 1)]
        layout = _layout(head, read, start, step, keys)
        features, states = head.read(features, tokens, layout)
        anchors = (rows, places - start)
        yield features[anchors], states[anchors]


def _layout(head: FeatureHead, read: Tensor, start: int, step: int, keys: GrowingKeys) -> Layout:
    """Step ``step`` from place ``start`` on: positions, and what each place sees."""
    visible = read <= read[start:, None]  # (Q, P), of step 0
    own = torch.eye(len(read) - start, dtype=torch.bool, device=read.device)
    visible = torch.cat([visible, *[own] * step], dim=1)  # (Q, P + step * Q)
    batch_size = keys.batch_size
    positions = (read[start:] + step).expand(batch_size, -1)  # (B, Q)
    dtype = head.embed.weight.dtype
    return layout_of(head.arch, positions, visible.expand(batch_size, -1, -1), dtype, keys)
