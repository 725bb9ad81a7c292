"""The key/value cache: zero-filled buffers in which every row has a length of its own.

A forward *writes* its nodes behind the committed entries of each row and leaves the lengths alone;
*keep* then says how many of them count. What was written and not kept is simply overwritten:
refusing a token costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

KEY_BLOCK = 512  # torch's CPU attention sums keys in blocks of this size; see transformer.py
DRAFT_STEP = 64  # slots; what attention reads for drafts is rounded up to it


class KVCache:
    """Keys and values of every layer, and how many entries of each row are committed.

    ``entries`` is (layers, B * capacity + 1, 2 * kv_heads, head_dim): slot ``s`` of row ``b`` lies
    at ``b * capacity + s``, keys before values, and the one extra place takes whatever would lie
    beyond a row's capacity. ``lengths`` is (B,) int64. ``max_used`` is an upper bound of
    ``lengths.max()`` that is known without reading the device.

    ``rungs``, ascending, are numbers of slots below whole blocks that attention may read as well.
    ``alike`` says whether a row has to come out bitwise the same in any company; see `for_drafts`.
    """

    alike = True

    def __init__(
        self,
        batch_size: int,
        max_length: int,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        rungs: Sequence[int] = (),
    ) -> None:
        self.batch_size = batch_size
        self.rungs = rungs
        self.capacity = round_up(max(max_length, 1), KEY_BLOCK)
        places = batch_size * self.capacity + 1
        self.entries = torch.zeros(
            num_layers, places, 2 * num_kv_heads, head_dim, dtype=dtype, device=device
        )
        rows = self.entries[:, :-1].unflatten(1, (batch_size, self.capacity)).transpose(2, 3)
        keys, values = rows.chunk(2, dim=2)  # (layers, B, kv_heads, capacity, head_dim), as views
        self._layers = list(zip(self.entries, keys, values, strict=True))
        self.lengths = torch.zeros(batch_size, dtype=torch.long, device=device)  # (B,)
        self.row_starts = torch.arange(batch_size, device=device)[:, None] * self.capacity  # (B, 1)
        self.max_used = 0
        self.num_written = 0

    def places(self, num_nodes: int, num_before: int = 0) -> Tensor:
        """Where the next ``num_nodes`` nodes of every row go, flat: (B * num_nodes,) places of
        ``entries[layer]``; ``num_before`` nodes written earlier, and not kept, stay in front.
        """
        self.num_written = num_before + num_nodes
        ahead = torch.arange(num_before, self.num_written, device=self.lengths.device)
        slots = self.lengths[:, None] + ahead
        return self._flat(slots).flatten()

    def _flat(self, slots: Tensor) -> Tensor:
        beyond = self.batch_size * self.capacity
        return torch.where(slots < self.capacity, self.row_starts + slots, beyond)

    def num_keys(self, num_nodes: int) -> int:
        """How many slots of every row attention must read when ``num_nodes`` more are written: the
        next of the ``rungs``, or whole blocks of keys.
        """
        needed = min(self.max_used + num_nodes, self.capacity)
        rung = next((rung for rung in self.rungs if needed <= rung), None)
        return rung or round_up(needed, KEY_BLOCK)

    def for_drafts(self) -> KVCache:
        """This cache, from now on read as cheaply as can be: a row of a draft need not come out the
        same in any company.
        """
        self.alike = False
        self.rungs = range(DRAFT_STEP, self.capacity + 1, DRAFT_STEP)
        return self

    def shared(self) -> KVCache:
        """A second cache on the same entries, with lengths of its own. What it writes stands where
        this one writes next.
        """
        return copy.copy(self)

    def write(self, layer: int, places: Tensor, keys_values: Tensor) -> None:
        """Store ``keys_values`` (B * num_nodes, 2 * kv_heads, head_dim) at a layer's ``places``."""
        self._layers[layer][0].index_copy_(0, places, keys_values)

    def read(self, layer: int, num_keys: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, each (B, kv_heads, num_keys, head_dim), as views."""
        _, keys, values = self._layers[layer]
        return keys.narrow(2, 0, num_keys), values.narrow(2, 0, num_keys)

    def keep(self, path: Tensor | None, counts: Tensor) -> None:
        """Commit ``counts`` (B,) of the nodes last written, the pending one first; 0 leaves a row
        as it was.

        A chain lies in place already (``path`` None). For a tree, ``path`` (B, D) names the
        accepted draft nodes in order; their entries are gathered behind the pending one. No row
        ever touches another.
        """
        if path is not None and path.shape[1] > 0:
            self._gather(path, counts)
        self.lengths = self.lengths + counts
        self.max_used = min(self.max_used + self.num_written, self.capacity)
        self.num_written = 0

    def _gather(self, path: Tensor, counts: Tensor) -> None:
        depth = torch.arange(path.shape[1], device=path.device)  # (D,)
        kept = depth < counts[:, None] - 1  # (B, D)
        first = self.lengths[:, None] + 1
        source = self._flat(first + torch.where(kept, path, depth)).flatten()
        goal = self._flat(first + depth).flatten()
        self.entries.index_copy_(1, goal, self.entries.index_select(1, source))

    def settle(self, max_length: int) -> None:
        """Tell the cache the longest true length, once the loop has read it from the device."""
        if not 0 <= max_length <= self.capacity:
            raise ValueError(
                f"A row of {max_length} tokens does not fit a cache for {self.capacity}: "
                "start it with a larger max_length."
            )
        self.max_used = max_length

    def roll_back(self, lengths: Tensor) -> None:
        """Forget every entry at or beyond ``lengths`` (B,); asking for less than 0 gives 0, for
        more changes nothing.
        """
        self.lengths = torch.minimum(self.lengths, lengths.clamp(min=0))


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``value``."""
    return -(-value // multiple) * multiple
