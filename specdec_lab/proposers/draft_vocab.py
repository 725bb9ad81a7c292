"""A draft vocabulary: the few thousand tokens that a drafting head may propose.

In a small model the head is a fifth of all weights, and in a small drafting head nearly all of
them. A head over the tokens that matter costs a sixth of it (FR-Spec, Zhao et al. 2025; EAGLE-3, Li
et al. 2025). Exactness is untouched: a token that is never drafted has q = 0. What it costs is
acceptance, which cannot exceed the target's mass on the tokens kept (`DraftVocab.coverage`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from specdec_lab.decoding.sampling import History, Sampling
from specdec_lab.decoding.target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT_SIZE = 8192
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # how tokenizers that are not byte-level spell a byte


class Coverage(NamedTuple):
    """The cap that a draft vocabulary puts on acceptance, greedy and sampled."""

    argmax: float  # share of places whose most probable token can be drafted
    mass: float  # mean probability of all tokens that can be drafted


class DraftVocab:
    """The target ids that may be drafted, in rising order, and the map between both numberings.

    ``draft_to_target`` (Vd,) holds absolute target ids, ``target_to_draft`` (V,) draft ids, -1 for
    a token that is not kept. Rising order keeps ties where they are: the lowest id wins in both.
    Raises ValueError for ids that do not rise, or that the target does not have.
    """

    def __init__(self, ids: Sequence[int] | Tensor, target_size: int) -> None:
        ids = torch.as_tensor(ids, dtype=torch.long).cpu()
        rising = bool((ids.diff() > 0).all())
        if not len(ids) or not rising or int(ids[0]) < 0 or int(ids[-1]) >= target_size:
            raise ValueError(
                f"A draft vocabulary needs rising target ids from 0 to {target_size - 1}; "
                "sort them, and give ids and not offsets."
            )
        self._places = {token: place for place, token in enumerate(ids.tolist())}
        self.draft_to_target = ids  # (Vd,)
        self.target_to_draft = torch.full((target_size,), -1).scatter(
            0, ids, torch.arange(len(ids))
        )

    def __len__(self) -> int:
        """How many tokens can be drafted."""
        return len(self._places)

    def to(self, device: torch.device | str) -> DraftVocab:
        """The same vocabulary with its maps on ``device``."""
        moved = object.__new__(DraftVocab)
        moved._places = self._places
        moved.draft_to_target = self.draft_to_target.to(device)
        moved.target_to_draft = self.target_to_draft.to(device)
        return moved

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """Target ids, in the shape of ``draft_ids``."""
        return self.draft_to_target[draft_ids]

    def to_draft(self, target_ids: Tensor) -> Tensor:
        """Draft ids, -1 for what is not kept, in the shape of ``target_ids``."""
        return self.target_to_draft[target_ids]

    def sampling(self, sampling: Sampling) -> Sampling:
        """``sampling`` for logits over draft ids: its bias is renumbered."""
        if not sampling.bias:
            return sampling
        kept = {self._places[t]: b for t, b in sampling.bias.items() if t in self._places}
        return replace(sampling, bias=kept)

    def history(self, history: History | None) -> History | None:
        """Counts (B, ..., V) of target tokens as counts (B, ..., Vd) of draft tokens."""
        if history is None:
            return None
        ids = self.draft_to_target
        return History(history.total.index_select(-1, ids), history.output.index_select(-1, ids))

    def coverage(self, target_probs: Tensor) -> Coverage:
        """The cap on acceptance at places with the target's laws (..., V)."""
        kept = self.to_draft(target_probs.argmax(-1)) >= 0
        mass = target_probs.index_select(-1, self.draft_to_target).sum(-1)
        return Coverage(float(kept.double().mean()), float(mass.double().mean()))

    def head_of(self, target: Target) -> nn.Linear:
        """The rows (Vd, H) of the target's head, frozen, beside a bias (Vd,) that can be trained.

        The bias starts at 0; a good start is the logarithm of how often each token comes.
        """
        model = target.model
        whole = model.embed.weight if model.arch.tied else model.head.unpacked()
        rows = whole.detach().index_select(0, self.draft_to_target.to(whole.device))
        head = nn.Linear(rows.shape[1], len(self), device="meta", dtype=rows.dtype)
        head.weight = nn.Parameter(rows, requires_grad=False)
        head.bias = nn.Parameter(rows.new_zeros(len(self)))
        return head


def count_tokens(texts: Iterable[Sequence[int]], vocab_size: int) -> Tensor:
    """How often each id stands in ``texts``, (V,) int64."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for text in texts:
        counts += torch.as_tensor(text, dtype=torch.long).bincount(minlength=vocab_size)
    return counts


def most_useful(
    counts: Sequence[Tensor], size: int = DEFAULT_SIZE, always: Iterable[int] = ()
) -> DraftVocab:
    """The ``size`` tokens that come most often, and those of ``always`` whatever their count.

    ``counts`` has a tensor (V,) for each kind of text, such as English, Turkish and code. Kinds
    weigh the same, however much was counted of each; ties go to the lower id. Raises ValueError
    when ``size`` is less than ``always`` needs or more than there are tokens.
    """
    always = torch.tensor(sorted(set(always)), dtype=torch.long)
    vocab_size = len(counts[0])
    if not len(always) <= size <= vocab_size or size < 1:
        raise ValueError(
            f"size must be from {max(len(always), 1)} (tokens that are always kept) to "
            f"{vocab_size} (tokens that there are), not {size!r}."
        )
    shares = sum(count.double() / count.sum().clamp(min=1) for count in counts)
    shares = shares.index_fill(0, always, torch.inf)
    ids = shares.sort(descending=True, stable=True).indices[:size]
    return DraftVocab(ids.sort().values, vocab_size)


def always_kept(tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int] = ()) -> list[int]:
    """Ids that every draft vocabulary needs: the single bytes, with which any text can be written,
    and the tokens that end or frame a message.
    """
    names = tokenizer.get_vocab()
    single = (i for name, i in names.items() if len(name) == 1 or _BYTE.fullmatch(name))
    return sorted({*single, *tokenizer.all_special_ids, *eos_ids})
