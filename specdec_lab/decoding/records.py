"""The records that flow through the decoding loop.

One step of speculative decoding is a chain of these:

    Context -> propose -> Draft -> Target.score -> Scores -> verify -> Verdict -> keep -> Step

Every tensor carries the batch axis ``B`` first; rows are independent and may differ in length.
Fixed letters in shape comments: ``B`` rows, ``L`` context, ``N`` drafted nodes, ``V`` vocabulary,
``H`` hidden width, ``D`` accepted depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Context:
    """All committed tokens of every row, left-aligned; the last one of a row is *pending*: in no
    cache yet.

    ``tokens`` is (B, L) int64 (whatever stands at or beyond ``lengths`` is meaningless),
    ``lengths`` (B,) int64, and
    ``prompt_lengths`` (B,) int64 says how many of them were the prompt.
    """

    tokens: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    prompt_lengths: Tensor  # (B,)

    @property
    def pending(self) -> Tensor:
        """The newest token of every row, (B,)."""
        return self.tokens.gather(1, self.lengths[:, None] - 1).squeeze(1)


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens of every row, and the law they were drawn from.

    ``tokens`` is (B, N) int64; only the first ``count`` (B,) of a row are meant. ``parents`` is
    ``None`` for a chain, else (B, N) int64: the index of each node's parent among the nodes before
    it, -1 for a child of the pending token; siblings stand in drawing order (see `tree`).
    ``probs`` is ``None`` when the proposal is a deterministic function of the context (a one-hot
    law), else (B, N, Vd) float: row ``i`` is *the very tensor* that token ``i`` was drawn from.
    When a draft vocabulary is smaller than the target's, ``draft_to_target`` (Vd,) int64 maps its
    columns to target ids.
    """

    tokens: Tensor  # (B, N)
    count: Tensor  # (B,)
    parents: Tensor | None = None  # (B, N)
    probs: Tensor | None = None  # (B, N, Vd)
    draft_to_target: Tensor | None = None  # (Vd,)

    @staticmethod
    def empty(batch_size: int, device: torch.device | str = "cpu") -> Draft:
        """A draft of nothing: an ordinary value, and what plain decoding verifies."""
        return Draft(
            tokens=torch.zeros(batch_size, 0, dtype=torch.long, device=device),  # (B, 0)
            count=torch.zeros(batch_size, dtype=torch.long, device=device),  # (B,)
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """What one target forward says about the pending token (node 0) and the N drafted nodes behind
    it.

    ``logits`` is (B, N+1, V): row ``i`` judges the *children* of node ``i``. ``hidden`` maps each
    layer asked for to the target's true states, (B, N+1, H).
    """

    logits: Tensor  # (B, N+1, V)
    hidden: dict[int, Tensor] = field(default_factory=dict)  # layer -> (B, N+1, H)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which drafted nodes were accepted, and the one token that follows them.

    ``path`` is (B, D) int64, the accepted draft nodes in order (entries at or beyond
    ``num_accepted`` are meaningless); ``num_accepted`` is (B,) and ``next_token`` (B,): the *bonus*
    token when all drafted tokens of the row were accepted, else the *recovered* one.
    """

    path: Tensor  # (B, D)
    num_accepted: Tensor  # (B,)
    next_token: Tensor  # (B,)


@dataclass(frozen=True, slots=True)
class RowStep:
    """What one step did to one row, on the host, after every cut (end token, stop, budget).

    ``drafted`` are the tokens that were judged, ``tokens`` those committed: the first
    ``num_accepted`` of them drafted, then at most one more. ``at`` is the engine time in seconds
    since the request started when they were ready. For a tree, ``parents`` are those of the drafted
    nodes and ``path`` the nodes that were accepted.
    """

    drafted: list[int]
    tokens: list[int]
    num_accepted: int
    at: float
    parents: list[int] | None = None
    path: list[int] | None = None

    @property
    def depths(self) -> list[int]:
        """Depth of every drafted node, from 1: its position in the draft, as judged."""
        if self.parents is None:
            return list(range(1, len(self.drafted) + 1))
        found: list[int] = []
        for parent in self.parents:
            found.append(1 + (found[parent] if parent >= 0 else 0))
        return found

    @property
    def was_refused(self) -> bool:
        """Whether something was drafted behind what was accepted, and none of it was taken."""
        if len(self.tokens) <= self.num_accepted:
            return False
        if self.parents is None:
            return self.num_accepted < len(self.drafted)
        return (self.path[-1] if self.path else -1) in self.parents

    def before_cut(self) -> RowStep:
        """Without the drafted nodes deeper than the text when that ends inside the accepted path:
        what lies behind an end token or the limit was never there.
        """
        length = len(self.tokens)
        if length > self.num_accepted:
            return self
        kept = [i for i, depth in enumerate(self.depths) if depth <= length]
        drafted = [self.drafted[i] for i in kept]
        if self.parents is None:
            return replace(self, drafted=drafted, num_accepted=length)
        number = {-1: -1} | {old: new for new, old in enumerate(kept)}
        parents = [number[self.parents[i]] for i in kept]
        path = [number[i] for i in self.path[:length]]
        return replace(self, drafted=drafted, num_accepted=length, parents=parents, path=path)

    @property
    def kinds(self) -> list[str]:
        """``accepted`` for every drafted token, then ``bonus``, ``recovered`` or (nothing drafted)
        ``plain``.
        """
        last = "recovered" if self.was_refused else "bonus"
        last = last if self.drafted else "plain"
        return ["accepted"] * self.num_accepted + [last] * (len(self.tokens) - self.num_accepted)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did to every row: the unit that ``stream`` yields and ``Trace`` counts.

    ``rows`` has ``None`` where a row was finished before; ``finish_reasons`` says per row ``None``
    while it runs, else
    ``eos``, ``length`` or ``stop``. ``seconds`` splits the engine's wall time: ``prefill`` (first
    step only), ``propose``,
    ``score``, ``verify`` and ``other``. On an accelerator the parts before ``verify`` are launch
    times only.
    """

    rows: list[RowStep | None]
    finish_reasons: list[str | None]
    seconds: dict[str, float]
