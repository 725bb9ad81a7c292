"""The one decoder: targets, draft models and drafting heads are all made of these layers.

Llama's shape and its kin: RMSNorm, rotary positions, grouped-query attention, gated MLP; optional
biases (qwen2) and query/key norms (qwen3). Parameters are ordinary and trainable; ``pack()`` gives
the fast copy for inference.

Rows are bit-identical on the CPU. A token's logits must not depend on how many other tokens were
scored with it, or a speculative run could not equal the plain one. Packed products and norms have
that property; torch's CPU attention gets it when query rows are padded to whole tiles
(``query_tile``), keys to whole blocks (``cache.KEY_BLOCK``) or what gives the same bits
(``key_rungs``), and a mask is always passed. Drafts do without all that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lab.decoding.cache import KEY_BLOCK, KVCache, round_up
from specdec_lab.decoding.linear import packed_copy

TILES = (4, 8, 16, 32)  # 32 rows are what torch's CPU attention works on at a time
RUNGS = (64, 128, 192, 256, 384)  # numbers of keys that may do instead of a whole block


@dataclass(frozen=True)
class Architecture:
    """The numbers that define a decoder. ``inv_freq`` and ``rope_scale`` define its rotary
    positions.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    inv_freq: tuple[float, ...]  # head_dim / 2 of them
    rope_scale: float = 1.0
    norm_eps: float = 1e-5
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """What all layers of one forward share: rotary tables, where to write, what may be seen.

    The tables cover queries, keys and values at once; values turn by no angle.
    """

    cos: Tensor  # (B, N, heads + 2 * kv_heads, head_dim)
    sin: Tensor  # (B, N, heads + 2 * kv_heads, head_dim), first half negated
    mask: Tensor  # (B, 1, query rows, keys), 0 or -inf
    cache: KVCache | None = None
    places: Tensor | None = None  # (B * N,)
    num_keys: int = 0


class RMSNorm(nn.Module):
    """x / rms(x) * weight, over the last axis.

    On the CPU, where torch's own norm is a chain of small operations, the mean square is that of a
    vector norm: a third of the time for one row, and as exact.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        if x.device.type != "cpu" or x.dtype.itemsize < 4:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
        floor = _constant(self.eps, x.dtype)
        mean_square = torch.addcmul(floor, norm, norm, value=1 / x.shape[-1])
        return x * mean_square.rsqrt() * self.weight


@lru_cache(maxsize=8)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    """(), made once: adding a number of Python costs a conversion every time."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=dtype)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; q, k and v in one product."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = arch.num_heads, arch.num_kv_heads
        self.head_dim = arch.head_dim
        num_all = arch.num_heads + 2 * arch.num_kv_heads
        self.qkv = nn.Linear(arch.hidden_size, num_all * arch.head_dim, bias=arch.qkv_bias)
        self.output = nn.Linear(
            arch.num_heads * arch.head_dim, arch.hidden_size, bias=arch.output_bias
        )
        self.q_norm = RMSNorm(arch.head_dim, arch.norm_eps) if arch.qk_norm else None
        self.k_norm = RMSNorm(arch.head_dim, arch.norm_eps) if arch.qk_norm else None

    def forward(self, x: Tensor, layout: Layout, layer: int) -> Tensor:
        """(B, N, hidden) to (B, N, hidden); writes this layer's keys and values when the layout has
        a cache.
        """
        batch_size, num_nodes, _ = x.shape
        qkv = self.qkv(x).view(batch_size, num_nodes, -1, self.head_dim)
        if self.q_norm is not None:
            sizes = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
            queries, keys, values = qkv.split(sizes, dim=2)
            qkv = torch.cat((self.q_norm(queries), self.k_norm(keys), values), dim=2)
        turned = _rotate(qkv, layout.cos, layout.sin)
        queries, keys_values = turned.split((self.num_heads, 2 * self.num_kv_heads), dim=2)
        if layout.cache is not None:
            layout.cache.write(layer, layout.places, keys_values.flatten(0, 1))
            keys, values = layout.cache.read(layer, layout.num_keys)
        else:
            keys, values = keys_values.transpose(1, 2).chunk(2, dim=1)
        seen = self._attend(queries, keys, values, layout.mask)
        return self.output(seen)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Fold the heads of a group into the row axis, pad the rows as the mask is padded, attend,
        unfold.
        """
        batch_size, num_nodes = queries.shape[:2]
        group = self.num_heads // self.num_kv_heads
        rows = num_nodes * group
        if num_nodes > 1:
            queries = queries.unflatten(2, (self.num_kv_heads, group)).transpose(1, 2)
        queries = queries.reshape(batch_size, self.num_kv_heads, rows, self.head_dim)
        queries = F.pad(queries, (0, 0, 0, mask.shape[2] - rows))
        seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        seen = seen[:, :, :rows]  # (B, kv_heads, rows, head_dim)
        if num_nodes > 1:
            seen = seen.unflatten(2, (num_nodes, group)).transpose(1, 2)
        return seen.reshape(batch_size, num_nodes, -1)  # (B, N, heads * head_dim)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn (B, N, heads, head_dim) by its positions; ``sin`` carries the rotated half's sign."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)); gate and up in one product."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.gate_up = nn.Linear(arch.hidden_size, 2 * arch.mlp_size, bias=arch.mlp_bias)
        self.down = nn.Linear(arch.mlp_size, arch.hidden_size, bias=arch.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """One decoder layer: attention, then MLP, each behind a norm and added to the stream."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(arch.hidden_size, arch.norm_eps)
        self.attention = Attention(arch)
        self.mlp_norm = RMSNorm(arch.hidden_size, arch.norm_eps)
        self.mlp = MLP(arch)

    def forward(self, x: Tensor, layout: Layout, layer: int = 0) -> Tensor:
        """(B, N, hidden) to (B, N, hidden)."""
        x = x + self.attention(self.attention_norm(x), layout, layer)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Embedding, layers, final norm and head."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.embed = nn.Embedding(arch.vocab_size, arch.hidden_size)
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.num_layers))
        self.norm = RMSNorm(arch.hidden_size, arch.norm_eps)
        self.head = nn.Linear(arch.hidden_size, arch.vocab_size, bias=False)
        if arch.tied:
            self.head.weight = self.embed.weight

    def new_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache for ``batch_size`` rows of up to ``max_length`` tokens."""
        return KVCache(
            batch_size,
            max_length,
            num_layers=self.arch.num_layers,
            num_kv_heads=self.arch.num_kv_heads,
            head_dim=self.arch.head_dim,
            dtype=self.embed.weight.dtype,
            device=self.embed.weight.device,
            rungs=key_rungs(self.arch.head_dim) if _padded(self.embed.weight) else (),
        )

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        hidden_layers: Sequence[int] = (),
        seen: Tensor | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Read a chain of tokens (B, N) behind what the cache holds; without a cache, a whole text
        from position 0. With a cache they may be nodes of trees: see `tree_layout` for ``seen``.

        Returns the states after the final norm, (B, N, hidden), which ``head`` turns into logits,
        and the layers asked for: ``i`` is the stream entering layer ``i``, ``num_layers`` the
        states after the final norm.
        """
        x = self.embed(tokens)  # (B, N, hidden)
        if seen is None:
            layout = chain_layout(self.arch, x, cache)
        else:
            layout = tree_layout(self.arch, x, cache, seen)
        hidden: dict[int, Tensor] = {}
        for i, layer in enumerate(self.layers):
            if i in hidden_layers:
                hidden[i] = x
            x = layer(x, layout, i)
        x = self.norm(x)
        if len(self.layers) in hidden_layers:
            hidden[len(self.layers)] = x
        return x, hidden

    def pack(self) -> Transformer:
        """The fast copy for inference: products packed, everything else shared with this module, no
        gradients.
        """
        return packed_copy(self)


def chain_layout(arch: Architecture, x: Tensor, cache: KVCache | None = None) -> Layout:
    """Positions, places and mask for a chain of nodes ``x`` (B, N, hidden) behind the committed
    entries of ``cache``.
    """
    batch_size, num_nodes, _ = x.shape
    steps = torch.arange(num_nodes, device=x.device)
    if cache is None:
        positions, num_keys, places = steps.expand(batch_size, -1), num_nodes, None
    else:
        positions = cache.lengths[:, None] + steps  # (B, N)
        num_keys, places = cache.num_keys(num_nodes), cache.places(num_nodes)
    visible = torch.arange(num_keys, device=x.device) <= positions[:, :, None]  # (B, N, keys)
    return layout_of(arch, positions, visible, x.dtype, cache, places, num_keys)


def tree_layout(arch: Architecture, x: Tensor, cache: KVCache, seen: Tensor) -> Layout:
    """The same for nodes of trees: ``seen`` (B, N, M) bool says which of the M nodes behind the
    committed entries each node of ``x`` descends from, itself included.

    The nodes of ``x`` are the last N of the M; those before them were written earlier, and not
    kept. A node's position is that of its depth, whatever slot it lies in.
    """
    num_nodes, num_behind = seen.shape[1:]
    lengths = cache.lengths[:, None]  # (B, 1)
    num_keys = cache.num_keys(num_behind)
    places = cache.places(num_nodes, num_behind - num_nodes)
    ahead = torch.arange(num_keys, device=x.device) - lengths  # (B, keys), 0 is the first node
    node = ahead.clamp(0, num_behind - 1)[:, None].expand(-1, num_nodes, -1)
    drafted = (ahead >= 0) & (ahead < num_behind)
    visible = (ahead < 0)[:, None] | (drafted[:, None] & seen.gather(2, node))  # (B, N, keys)
    positions = lengths + seen.sum(-1) - 1  # (B, N)
    return layout_of(arch, positions, visible, x.dtype, cache, places, num_keys)


def layout_of(
    arch: Architecture,
    positions: Tensor,
    visible: Tensor,
    dtype: torch.dtype,
    cache: KVCache | None = None,
    places: Tensor | None = None,
    num_keys: int = 0,
) -> Layout:
    """The layout of nodes at ``positions`` (B, N) that see the keys of ``visible`` (B, N, keys)
    bool: for whoever draws a mask of their own.
    """
    mask = _fold_mask(visible, arch, dtype, alike=cache is None or cache.alike)
    return Layout(*_rotary(arch, positions, dtype), mask, cache, places, num_keys)


def _rotary(arch: Architecture, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of every position and head, (B, N, heads + 2 * kv_heads, head_dim); angles in
    float32, as the models were trained. Values come last, with the angle 0.
    """
    angles = positions[:, :, None, None].float() * _frequencies(arch.inv_freq, positions.device)
    cos, sin = angles.cos() * arch.rope_scale, angles.sin() * arch.rope_scale
    turned = (-1, -1, arch.num_heads + arch.num_kv_heads, -1)
    values = (0, 0, 0, arch.num_kv_heads)
    cos, sin = torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)
    return F.pad(cos.expand(turned), values, value=1.0), F.pad(sin.expand(turned), values)


@lru_cache(maxsize=8)
def _frequencies(inv_freq: tuple[float, ...], device: torch.device) -> Tensor:
    """(head_dim / 2,), moved to the device once; no buffer, so that a model cast to bf16 keeps them
    whole.
    """
    return torch.tensor(inv_freq, device=device)


def _fold_mask(visible: Tensor, arch: Architecture, dtype: torch.dtype, alike: bool) -> Tensor:
    """(B, N, keys) bool to an additive mask (B, 1, rows, keys): a row per node and head of a group.

    Where rows are to come out ``alike`` in any company they are padded to whole tiles; a padded row
    sees everything.
    """
    mask = torch.zeros((), dtype=dtype, device=visible.device)
    mask = torch.where(visible, mask, -torch.inf)
    mask = mask.repeat_interleave(arch.num_heads // arch.num_kv_heads, dim=1)[:, None]
    tile = query_tile(arch.head_dim) if alike and _padded(mask) else 1
    return F.pad(mask, (0, 0, 0, round_up(mask.shape[2], tile) - mask.shape[2]))


def _padded(x: Tensor) -> bool:
    """Whether attention over such numbers has to be padded for its rows to come out alike; on other
    devices nothing helps.
    """
    return x.device.type == "cpu" and x.dtype == torch.float32


@lru_cache(maxsize=8)
def query_tile(head_dim: int) -> int:
    """The smallest padding of query rows with which CPU attention gives a row the same bits in any
    company, probed on this machine: 32 where smaller ones do not hold.
    """
    return next((tile for tile in TILES[:-1] if _rows_agree(tile, head_dim)), TILES[-1])


@lru_cache(maxsize=8)
def key_rungs(head_dim: int) -> tuple[int, ...]:
    """Which of ``RUNGS`` give a row the bits that whole blocks of keys give it, probed on this
    machine: some processors sum in another order where there are few keys.
    """
    return tuple(rung for rung in RUNGS if _keys_agree(rung, head_dim))


def _rows_agree(tile: int, head_dim: int) -> bool:
    """Whether the first rows come out alike alone and in company, over one key block and two."""
    visible = torch.arange(2 * KEY_BLOCK) <= 7 * torch.arange(2 * KEY_BLOCK)[:, None]
    alone = _attend_randomly(head_dim, visible[:tile, :KEY_BLOCK])
    return all(
        torch.equal(_attend_randomly(head_dim, visible[:rows, :keys])[:, :, :tile], alone)
        for rows in _companies(tile)
        for keys in (KEY_BLOCK, 2 * KEY_BLOCK)
    )


def _keys_agree(rung: int, head_dim: int) -> bool:
    """Whether the first rows come out over ``rung`` keys as over a block, alone and in company."""
    tile = query_tile(head_dim)
    numbers = [tile, *_companies(tile)]
    for used in (rung // 2, rung - 7, rung):
        visible = (torch.arange(KEY_BLOCK) < used).expand(max(numbers), -1)
        whole = _attend_randomly(head_dim, visible[:tile])
        found = (_attend_randomly(head_dim, visible[:rows, :rung]) for rows in numbers)
        if not all(torch.equal(rows[:, :, :tile], whole) for rows in found):
            return False
    return True


def _companies(tile: int) -> list[int]:
    """Numbers of rows that attention splits in different ways."""
    return [tile * n for n in range(2, 9)] + [96, 192, 256, 768, 1024]


@torch.no_grad()
def _attend_randomly(head_dim: int, visible: Tensor) -> Tensor:
    """Attention of one head over random keys, the same every time: ``visible`` (rows, keys) says
    who sees what. Returns (1, 1, rows, head_dim).
    """
    rows, num_keys = visible.shape
    queries, keys, values = _random_rows(head_dim)
    mask = torch.zeros(()).where(visible, -torch.inf)[None, None]
    return F.scaled_dot_product_attention(
        queries[:, :, :rows], keys[:, :, :num_keys], values[:, :, :num_keys], attn_mask=mask
    )


@lru_cache(maxsize=1)
def _random_rows(head_dim: int) -> Tensor:
    """Queries, keys and values, (3, 1, 1, 2 blocks, head_dim)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 1, 1, 2 * KEY_BLOCK, head_dim, generator=generator)
