"""Drafting a chain token by token: what every drafter with a law of its own shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import History, Sampling, history_of
from specdec_lab.proposers.draft_vocab import DraftVocab

DRAFTING = ("probabilistic", "greedy")


def checked_drafting(drafting: str) -> str:
    """``drafting`` itself; ValueError unless it is one of ``DRAFTING``."""
    if drafting not in DRAFTING:
        raise ValueError(f"drafting must be one of {', '.join(DRAFTING)}, not {drafting!r}")
    return drafting


def checked_confidence(min_confidence: float) -> float:
    """``min_confidence`` itself; ValueError unless it is a probability."""
    if not 0 <= min_confidence <= 1:
        raise ValueError(
            f"min_confidence must lie in [0, 1], 0 never stops early, not {min_confidence!r}."
        )
    return min_confidence


def draft_chain(
    next_logits: Callable[[Tensor, int], Tensor],
    context: Context,
    k: int,
    sampling: Sampling,
    randomness: Randomness,
    vocab: DraftVocab | None = None,
    drafting: str = "probabilistic",
    min_confidence: float = 0.0,
) -> Draft:
    """``k`` tokens a row: each drawn from the drafter's law under the request's own sampling.

    ``next_logits(newest, place)`` is told the newest token (B,) of every row, at first the pending
    one, and returns logits (B, Vd) over ``vocab``, or (B, V) over the target's ids without one. The
    laws (B, k, Vd) go with the draft, unless it is greedy: by ``drafting``, or because the request
    is. A row's ``count`` ends behind its first token of less than ``min_confidence``.
    """
    greedy = drafting == "greedy" or sampling.is_greedy
    sampling = replace(sampling, temperature=0.0) if greedy else sampling
    own = vocab.sampling(sampling) if vocab else sampling
    newest = context.pending  # (B,)
    goes_on = torch.ones_like(newest, dtype=torch.bool)  # (B,)
    draft, laws = Draft.empty(len(newest), newest.device), []
    for place in range(k):
        logits = next_logits(newest, place).to(newest.device)  # (B, Vd)
        history = _history(sampling, context, draft, vocab, logits.shape[1])
        if greedy:
            drawn = own.choose(logits, history, randomness, context.lengths)  # (B,)
        else:
            laws.append(own.probs(logits, history))
            drawn = randomness.draw(laws[-1], context.lengths, Lane.DRAFT, place)
        newest = vocab.to_target(drawn) if vocab else drawn
        draft = Draft(torch.cat((draft.tokens, newest[:, None]), 1), draft.count + goes_on)
        if min_confidence > 0:
            law = logits.float().softmax(-1) if greedy else laws[-1]
            goes_on = goes_on & (law.gather(1, drawn[:, None])[:, 0] >= min_confidence)
            if goes_on.device.type == "cpu" and not goes_on.any():  # reading costs nothing here
                break
    return _with_laws(draft, laws, vocab)


def _history(
    sampling: Sampling, context: Context, draft: Draft, vocab: DraftVocab | None, width: int
) -> History | None:
    """The counts in front of the place drafted next, each (B, Vd)."""
    seen = history_of(sampling, context, draft, len(vocab.target_to_draft) if vocab else width)
    newest = seen and History(seen.total[:, -1], seen.output[:, -1])
    return vocab.history(newest) if vocab else newest


def _with_laws(draft: Draft, laws: list[Tensor], vocab: DraftVocab | None) -> Draft:
    if not laws:
        return draft
    draft_to_target = vocab.draft_to_target if vocab else None
    return replace(draft, probs=torch.stack(laws, 1), draft_to_target=draft_to_target)
