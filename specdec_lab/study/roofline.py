"""The least time that a decoding step can take: bytes to read, FLOPs to compute, and a device.

The roofline model (Williams, Waterman, Patterson 2009): a part of the work takes as long as its
bytes or its FLOPs take, whichever is longer. ``arch`` is everywhere the ``Architecture`` of a
model; nothing here needs torch. Figures of a step are per forward: ``batch`` sequences, each with
``rows`` tokens (the pending one and the drafted ones) behind ``context`` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.transformer import Architecture

BYTES = {"float32": 4.0, "bf16": 2.0, "int8": 1.0, "int4": 0.5}  # per number, scales not counted


@dataclass(frozen=True, slots=True)
class Device:
    """What a roofline needs to know: ``bandwidth`` in bytes/s and ``flops`` in FLOP/s.

    ``source`` says where the two numbers come from.
    """

    name: str
    bandwidth: float
    flops: float
    source: str = "measured"

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which on computing, not reading, takes the time."""
        return self.flops / self.bandwidth

    def ridge_rows(self, bytes_per_weight: float = 2.0) -> float:
        """Rows of one forward at which its products reach the ridge: 2 FLOPs a weight and row."""
        return self.ridge * bytes_per_weight / 2


# Dense bf16, from pages that compare devices: secondary sources, not the makers' own sheets.
DEVICES = {
    "A100": Device("A100-80 SXM", 2.039e12, 312e12, "acecloud.ai, hmc-tech.com"),
    "H100": Device("H100 SXM", 3.35e12, 989e12, "acecloud.ai, itkb.uw.cz"),
    "H200": Device("H200 SXM", 4.8e12, 989e12, "itkb.uw.cz"),
    "B200": Device("B200", 8.0e12, 2.25e15, "acecloud.ai, hmc-tech.com"),
    "RTX 4090": Device("RTX 4090", 1.008e12, 165e12, "waredb.com"),
}


@dataclass(frozen=True, slots=True)
class Work:
    """What one forward reads and computes; products and attention apart."""

    weight_bytes: float
    kv_bytes: float
    linear_flops: float
    attention_flops: float

    @property
    def bytes(self) -> float:
        """All bytes that are read."""
        return self.weight_bytes + self.kv_bytes

    @property
    def flops(self) -> float:
        """All floating-point operations."""
        return self.linear_flops + self.attention_flops

    @property
    def intensity(self) -> float:
        """FLOPs per byte of the whole forward."""
        return self.flops / self.bytes

    def seconds(self, device: Device, launch: float = 0.0) -> float:
        """The least time on a device: products, then attention, then ``launch`` seconds of fixed
        cost.
        """
        products = max(self.weight_bytes / device.bandwidth, self.linear_flops / device.flops)
        attention = max(self.kv_bytes / device.bandwidth, self.attention_flops / device.flops)
        return products + attention + launch


def product_shapes(arch: Architecture) -> dict[str, list[tuple[int, int]]]:
    """(out, in) of every product of one forward, by part: attention, mlp, head."""
    queries, shared = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    hidden, mlp = arch.hidden_size, arch.mlp_size
    attention = [(queries, hidden), (shared, hidden), (shared, hidden), (hidden, queries)]
    return {
        "attention": attention * arch.num_layers,
        "mlp": [(mlp, hidden), (mlp, hidden), (hidden, mlp)] * arch.num_layers,
        "head": [(arch.vocab_size, hidden)],
    }


def weights_by_part(arch: Architecture) -> dict[str, int]:
    """How many weights each part multiplies with: attention, mlp, head."""
    shapes = product_shapes(arch).items()
    return {part: sum(rows * columns for rows, columns in sizes) for part, sizes in shapes}


def product_weights(arch: Architecture) -> int:
    """All weights that one forward multiplies with, and so must read.

    Norms and biases (0.03 % of SmolLM2) are left out, and an embedding that is not the head too: of
    that one, a forward reads a line per token.
    """
    return sum(weights_by_part(arch).values())


def num_parameters(arch: Architecture) -> int:
    """All parameters of a model, read in a forward or not."""
    layers, hidden = arch.num_layers, arch.hidden_size
    norms = (2 * layers + 1) * hidden + 2 * layers * arch.head_dim * arch.qk_norm
    biases = (
        arch.qkv_bias * (arch.num_heads + 2 * arch.num_kv_heads) * arch.head_dim
        + arch.output_bias * hidden
        + arch.mlp_bias * (2 * arch.mlp_size + hidden)
    )
    embedding = 0 if arch.tied else arch.vocab_size * hidden
    return product_weights(arch) + norms + layers * biases + embedding


def kv_bytes_per_token(arch: Architecture, bytes_per_value: float = 2.0) -> float:
    """Bytes of keys and values that one token leaves in the cache, over all layers."""
    return 2 * arch.num_layers * arch.num_kv_heads * arch.head_dim * bytes_per_value


def step_work(
    arch: Architecture,
    rows: int = 1,
    context: int = 0,
    batch: int = 1,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2.0,
) -> Work:
    """Bytes and FLOPs of one forward.

    The weights are read once for all rows of all sequences, and a sequence's keys and values once
    for all of its rows. Raises ValueError without a row or a sequence.
    """
    if rows < 1 or batch < 1:
        raise ValueError(f"A forward needs a row and a sequence: not {rows} rows, batch {batch}.")
    nodes = batch * rows
    weights = product_weights(arch)
    heads = arch.num_layers * arch.num_heads * arch.head_dim
    return Work(
        weight_bytes=weights * bytes_per_weight,
        kv_bytes=kv_bytes_per_token(arch, bytes_per_value) * context * batch,
        linear_flops=2 * weights * nodes,
        attention_flops=4 * heads * context * nodes,
    )


def attention_intensity(arch: Architecture, rows: int = 1, bytes_per_value: float = 2.0) -> float:
    """FLOPs per byte of attention; whatever the context and the batch are."""
    return 2 * rows * arch.num_heads / arch.num_kv_heads / bytes_per_value


def verify_cost(
    arch: Architecture,
    device: Device,
    k: int,
    context: int = 0,
    batch: int = 1,
    bytes_per_weight: float = 2.0,
    launch: float = 0.0,
) -> float:
    """V(k): the time of a step with k drafted tokens over the time of a plain step."""

    def seconds(rows: int) -> float:
        work = step_work(arch, rows, context, batch, bytes_per_weight)
        return work.seconds(device, launch)

    return seconds(k + 1) / seconds(1)


def crossover_batch(device: Device, k: int, bytes_per_weight: float = 2.0) -> float:
    """Sequences at which the k + 1 rows of each reach the ridge, the cache being small."""
    return device.ridge_rows(bytes_per_weight) / (k + 1)


def crossover_context(
    arch: Architecture, bytes_per_weight: float = 2.0, bytes_per_value: float = 2.0
) -> float:
    """Tokens in all caches together (batch times context) that are as many bytes as the weights."""
    weights = product_weights(arch) * bytes_per_weight
    return weights / kv_bytes_per_token(arch, bytes_per_value)
