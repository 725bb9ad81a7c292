"""From logits to the law that is sampled: the one function through which target *and* draft make
their probabilities.

Speculative decoding is exact relative to the law after every transform. So the same code computes
it for a plain step, for every verified row and for the bonus row, and a drafter that uses it
accepts more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.tree import ancestors

GREEDY_BELOW = 1e-5  # temperatures under this are greedy: no division, no rounding, one predicate


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen from logits. Order: penalties, bias, temperature, top-k, top-p, min-p.

    * ``temperature`` 0 is greedy (the lowest id wins a tie), and so is ``top_k=1``.
    * ``top_k`` keeps the k most probable tokens (ties: lowest ids), ``top_p`` the smallest set that
      reaches that mass (the token that crosses the line stays), ``min_p`` tokens of at least that
      share of the largest probability.
    * ``repetition_penalty`` (Keskar et al. 2019) divides positive and multiplies negative logits of
      every token seen in prompt or output, as in transformers; ``presence_penalty`` and
      ``frequency_penalty`` are subtracted once, or once per occurrence, for tokens of the *output*,
      as in vLLM.
    * ``bias`` maps token ids to numbers added to their logits.

    Raises ValueError for values outside their range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        finite = (self.temperature, self.top_p, self.min_p, self.repetition_penalty)
        finite += (self.presence_penalty, self.frequency_penalty, *self.bias.values())
        _require(all(_is_number(value) for value in finite), "values must be finite numbers", self)
        _require(self.temperature >= 0, "temperature must be 0 (greedy) or above", self.temperature)
        _require(0 < self.top_p <= 1, "top_p must lie in (0, 1]; 1 keeps everything", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p must lie in [0, 1]; 0 keeps everything", self.min_p)
        _require(self.repetition_penalty > 0, "repetition_penalty must be above 0; 1 is off", self)
        if self.top_k is not None:
            good = isinstance(self.top_k, int) and not isinstance(self.top_k, bool)
            _require(
                good and self.top_k >= 1,
                "top_k must be None or an integer of 1 or more",
                self.top_k,
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the law is one-hot at the largest logit: the one predicate for everybody."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        """Whether the law depends on which tokens came before."""
        neutral = (1.0, 0.0, 0.0)
        return (
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        ) != neutral

    def probs(self, logits: Tensor, history: History | None = None) -> Tensor:
        """The law (B, ..., V) that ``logits`` of that shape stand for; float32 at least, float64
        stays.

        ``history`` is needed when penalties are on (``history_of``); it has the leading axes of
        ``logits``.
        """
        logits = self._adjusted(logits, history)
        if self.is_greedy:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter(-1, best, 1.0)
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature
        probs = logits.softmax(-1)
        if self.top_k is not None or self.top_p < 1:
            probs = _keep_top(probs, self.top_k, self.top_p)
        if self.min_p > 0:
            floor = self.min_p * probs.amax(-1, keepdim=True)
            probs = probs.masked_fill(probs < floor, 0)
        if self.top_k is not None or self.top_p < 1 or self.min_p > 0:
            probs = probs / probs.sum(-1, keepdim=True)
        return probs

    def choose(
        self, logits: Tensor, history: History | None, randomness: Randomness, position: Tensor
    ) -> Tensor:
        """One token (B, ...) of the law at each row of ``logits`` (B, ..., V), drawn on the target
        lane.

        ``position`` (B, ...) is the absolute position that the token would take.
        """
        if self.is_greedy:
            return self._adjusted(logits, history).argmax(-1)
        return randomness.draw(self.probs(logits, history), position, Lane.TARGET)

    def _adjusted(self, logits: Tensor, history: History | None) -> Tensor:
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.has_penalties:
            if history is None:
                raise ValueError("Penalties need the history of tokens; pass history_of(...).")
            logits = _penalised(logits, history, self)
        if self.bias:
            ids = torch.tensor(list(self.bias), device=logits.device)
            values = torch.tensor(list(self.bias.values()), device=logits.device).to(logits.dtype)
            logits = logits.index_add(-1, ids, values.expand(*logits.shape[:-1], -1))
        return logits


@dataclass(frozen=True, slots=True)
class History:
    """How often every token came before each judged place: ``total`` and ``output`` (B, ..., V)
    int32.
    """

    total: Tensor  # (B, ..., V), prompt and output
    output: Tensor  # (B, ..., V), output only


def history_of(
    sampling: Sampling, context: Context, draft: Draft, vocab_size: int
) -> History | None:
    """What came before each node of a draft, (B, N+1, V): row i has seen the drafted nodes on the
    path to it, in a chain 0..i-1.

    ``None`` when no penalty is on, as nobody will look.
    """
    if not sampling.has_penalties:
        return None
    places = torch.arange(context.tokens.shape[1], device=context.tokens.device)  # (L,)
    written = places < context.lengths[:, None]  # (B, L)
    generated = written & (places >= context.prompt_lengths[:, None])
    drafted = _drafted_before(draft, vocab_size)  # (B, N+1, V)
    return History(
        total=_count(context.tokens, written, vocab_size)[:, None] + drafted,
        output=_count(context.tokens, generated, vocab_size)[:, None] + drafted,
    )


def _count(tokens: Tensor, counted: Tensor, vocab_size: int) -> Tensor:
    zeros = torch.zeros(
        tokens.shape[0], vocab_size, dtype=torch.int32, device=tokens.device
    )  # (B, V)
    ids = tokens.clamp(0, vocab_size - 1)
    return zeros.scatter_add(1, ids, counted.int())


def _drafted_before(draft: Draft, vocab_size: int) -> Tensor:
    num_rows, num_drafted = draft.tokens.shape
    shape = (num_rows, num_drafted + 1, vocab_size)
    once = torch.zeros(shape, dtype=torch.int32, device=draft.tokens.device)  # (B, N+1, V)
    ones = torch.ones_like(draft.tokens, dtype=torch.int32)
    once[:, 1:].scatter_(2, draft.tokens[..., None], ones[..., None])
    if draft.parents is None:
        return once.cumsum(1, dtype=torch.int32)
    return (ancestors(draft.parents).float() @ once.float()).int()


def _penalised(logits: Tensor, history: History, sampling: Sampling) -> Tensor:
    factor = sampling.repetition_penalty
    shrunk = torch.where(logits > 0, logits / factor, logits * factor)
    logits = torch.where(history.total > 0, shrunk, logits)
    logits = logits - sampling.presence_penalty * (history.output > 0)
    return logits - sampling.frequency_penalty * history.output


def _keep_top(probs: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Zero all but the top-k / top-p tokens: never an empty set, ties to the lowest id."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered = ordered[..., :top_k] / ordered[..., :top_k].sum(-1, keepdim=True)
        order = order[..., :top_k]
    if top_p < 1:
        before = ordered.cumsum(-1).roll(1, -1)  # mass in front of each token
        before[..., 0] = 0
        ordered = ordered.masked_fill(before >= top_p, 0)
    return torch.zeros_like(probs).scatter(-1, order, ordered)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require(condition: bool, rule: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{rule}, not {got!r}.")
