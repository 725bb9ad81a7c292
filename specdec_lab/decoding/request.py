"""What is asked of ``generate``, checked once, before any forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import Rule, check_rule

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

StopRule = Callable[[list[int], int], int | None]
DEFAULT_K = 4
MAX_K = 64  # beyond this a single forward is no longer nearly free on any machine of the course


@dataclass(frozen=True, slots=True)
class Request:
    """The checked arguments of ``generate``; ``k`` is 0 for plain decoding."""

    prompts: list[list[int]]
    limits: list[int]  # length at which each row must end
    proposer: Any
    k: int
    sampling: Sampling
    verify: str | Rule
    stop: StopRule | None

    @staticmethod
    def checked(
        target: Target,
        prompts: Sequence[Sequence[int]],
        proposer: Any,
        k: int | None,
        sampling: Sampling,
        verify: str | Rule,
        max_new_tokens: int,
        stop: str | Sequence[str] | StopRule | None,
    ) -> Request:
        """The request that these arguments mean; raises ValueError with one sentence where they
        mean none.
        """
        rows = _checked_prompts(prompts, target)
        budget = whole_number("max_new_tokens", max_new_tokens, 1)
        limits = [min(len(row) + budget, target.max_context) for row in rows]
        if proposer is not None and not callable(getattr(proposer, "propose", None)):
            raise ValueError(
                f"{proposer!r} is no proposer: it has no propose(...); see load_proposer."
            )
        if not isinstance(sampling, Sampling):
            raise ValueError(f"sampling must be a Sampling, not {type(sampling).__name__}.")
        if any(not 0 <= token < target.vocab_size for token in sampling.bias):
            raise ValueError(f"bias names ids outside the vocabulary of {target.vocab_size}.")
        check_rule(verify)
        return Request(
            rows,
            limits,
            proposer,
            _checked_k(k, proposer),
            sampling,
            verify,
            _stop_rule(stop, target),
        )

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (B, L) with room up to the longest limit, prompt lengths (B,) and limits (B,)."""
        width = max(self.limits)
        padded = [row + [0] * (width - len(row)) for row in self.prompts]
        lengths = [len(row) for row in self.prompts]
        tokens, *per_row = (torch.tensor(x, device=device) for x in (padded, lengths, self.limits))
        return tokens, *per_row


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """``value`` itself if it is an integer from ``least`` to ``most``; else ValueError."""
    wrong = isinstance(value, bool) or not isinstance(value, int)
    if wrong or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number, {bounds}, not {value!r}.")
    return value


def _checked_prompts(prompts: Sequence[Sequence[int]], target: Target) -> list[list[int]]:
    if isinstance(prompts, str) or not len(prompts):
        raise ValueError("prompts must be a list of token-id lists; encode the text first.")
    if any(isinstance(p, str) or not hasattr(p, "__len__") or _is_scalar(p) for p in prompts):
        raise ValueError("prompts must be a list of token-id lists; wrap a single prompt as [ids].")
    rows = [[int(token) for token in prompt] for prompt in prompts]
    for number, row in enumerate(rows):
        if not row:
            raise ValueError(
                f"Prompt {number} is empty; give at least one token, such as the start token."
            )
        if len(row) >= target.max_context:
            raise ValueError(
                f"Prompt {number} has {len(row)} tokens, but the model holds {target.max_context} "
                "with its answer; shorten it."
            )
        foreign = [token for token in row if not 0 <= token < target.vocab_size]
        if foreign:
            raise ValueError(
                f"Prompt {number} holds id {foreign[0]}, outside the vocabulary of "
                f"{target.vocab_size}; encode it with this model's tokenizer."
            )
    return rows


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _checked_k(k: int | None, proposer: Any) -> int:
    limit = MAX_K if proposer is None else getattr(proposer, "max_k", None) or MAX_K
    if k is None:
        k = getattr(proposer, "default_k", DEFAULT_K)
    k = whole_number("k", k, 0, limit)
    return 0 if proposer is None else k


def _stop_rule(stop: str | Sequence[str] | StopRule | None, target: Target) -> StopRule | None:
    if stop is None or callable(stop):
        return stop
    from specdec_lab.decoding.text import StopStrings

    return StopStrings(target.tokenizer, [stop] if isinstance(stop, str) else list(stop))
