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


def draft_chain(
    next_logits: Callable[[Tensor, int], Tensor],
    context: Context,
    k: int,
    sampling: Sampling,
    randomness: Randomness,
    vocab: DraftVocab,
    drafting: str = "probabilistic",
) -> Draft:
    """``k`` tokens a row: each drawn from the drafter's law under the request's own sampling.

    ``next_logits(newest, place)`` is told the newest token (B,) of every row, at first the pending
    one, and returns logits (B, Vd) over ``vocab``. The laws (B, k, Vd) go with the draft, unless it
    is greedy: by ``drafting``, or because the request is.
    """
    greedy = drafting == "greedy" or sampling.is_greedy
    own = vocab.sampling(replace(sampling, temperature=0.0) if greedy else sampling)
    newest = context.pending  # (B,)
    draft, laws = Draft.empty(len(newest), newest.device), []
    for place in range(k):
        logits = next_logits(newest, place).to(newest.device)  # (B, Vd)
        seen = history_of(sampling, context, draft, len(vocab.target_to_draft))
        history = vocab.history(_newest(seen))
        if greedy:
            drawn = own.choose(logits, history, randomness, context.lengths)
        else:
            laws.append(own.probs(logits, history))
            drawn = randomness.draw(laws[-1], context.lengths, Lane.DRAFT, place)
        newest = vocab.to_target(drawn)
        draft = Draft(torch.cat((draft.tokens, newest[:, None]), 1), draft.count + 1)
    if not laws:
        return draft
    return replace(draft, probs=torch.stack(laws, 1), draft_to_target=vocab.draft_to_target)


def _newest(history: History | None) -> History | None:
    """The counts in front of the place drafted next, each (B, V)."""
    return history and History(history.total[:, -1], history.output[:, -1])
