"""A draft model: a smaller or cheaper model writes k tokens, one after the other.

Leviathan et al. (2023) and Chen et al. (2023). Any Llama-shaped model with the target's tokenizer
will do. Where there is no small sibling, the target drafts for itself with its weights rounded to 4
or 8 bits (``int4``, ``int8``): rounding is lossy for a target and lossless for a draft.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.low_bit import LOW_BITS, LowBitLinear, low_bit_copy
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.chain import checked_confidence, checked_drafting, draft_chain
from specdec_lab.proposers.short_model import METHOD, ShortModel, load_short_model
from specdec_lab.proposers.weights import shipped

TRAINED = "trained"  # the model that comes with the project
CATCH_UP = 2  # tokens that a draft cache lacks at most when every step is proposed for


class DraftModel(Proposer):
    """Drafts chains with a model of its own, which keeps a cache in step with the target's.

    ``model`` is ``int4`` or ``int8`` (the target itself, rounded), ``trained`` (its first layers,
    see `short_model`) or the path of such weights, the name or folder of a checkpoint, or a Target.
    ``drafting`` is ``probabilistic``: tokens are drawn from the draft's
    law under the request's own sampling, and that law goes with the draft; or ``greedy``: the most
    probable token, one-hot. At temperature 0 both are greedy.

    A row's draft ends early behind a token that has less than ``min_confidence`` in the draft's own
    law: what follows it would be refused with it. Whether to stop depends on nothing but what was
    drafted so far and its laws, so the text keeps the target's law. It is for drafts that are
    refused where they are unsure; the twin is as unsure as the target and right all the same, so
    0, which never stops, is the default.

    The layers of a twin are the target's but for rounding. So it drafts on the target's own cache,
    which the loop shares with it: the text is read already, and what the twin writes behind it the
    target writes over. That too is only another law to draft from, one nearer to the target's.
    Given as a Target, it is a model like any other, and reads the text itself.

    On our tuning prompts, two cores, ``int4`` is the better twin: it drafts faster than ``int8``,
    whose rows are rounded too, and is accepted more often; 4 and 5 tokens do equally well.

    The invariant of an own cache: between steps it holds every committed token but the pending one,
    or one fewer: the last token of a draft is never read, so after full acceptance a step reads
    two.
    Raises ValueError for a model with another tokenizer.
    """

    def __init__(
        self,
        target: Target,
        model: str | os.PathLike | Target = "int4",
        drafting: str = "probabilistic",
        num_speculative_tokens: int = 4,
        min_confidence: float = 0.0,
    ) -> None:
        self.default_k = whole_number("num_speculative_tokens", num_speculative_tokens, least=0)
        self.drafting = checked_drafting(drafting)
        self.min_confidence = checked_confidence(min_confidence)
        self.model = _draft_of(target, model)
        check_same_tokenizer(target, self.model)
        self.vocab_size = target.vocab_size
        self.num_shared = _num_shared_ids(target, self.model)
        self.vocab = self.model.vocab if isinstance(self.model, ShortModel) else None
        self.catch_up = CATCH_UP
        self._twin_of = target if model in LOW_BITS else None
        self._cache = None

    @property
    def card(self) -> Mapping[str, float | None]:
        """What it takes to have the draft model, as `weights.card_of` says it; of a twin, the
        numbers and bytes of its rounded products.
        """
        return self.model.card if isinstance(self.model, ShortModel) else _twin_card(self.model)

    @property
    def num_read(self) -> Tensor:
        """How many tokens of each row the cache that is drafted on holds, (B,)."""
        return self._cache.lengths

    def start(self, batch_size: int, max_length: int) -> None:
        """Nothing is read yet; what earlier requests left is gone."""
        self._cache = self._shared = self._committed = None  # storage is free for the next one
        self._steps, self._size = self.model.steps, (batch_size, max_length)

    def share(self, cache: KVCache) -> None:
        """Takes the target's own cache, if this is its twin and what it drafts has room there."""
        if self._twin_of is not None and cache.capacity >= self._size[1]:
            self._steps, self._shared = self._twin_of.steps, cache

    @torch.no_grad()
    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Reads the prompt the first time; later forgets what was drafted and not kept. A cache
        that is shared is as the target left it.
        """
        if self._shared is not None:
            self._cache = self._steps.shared(self._shared)
            return
        counts = counts.to(self.model.device)
        if self._committed is None:
            self._cache = self._steps.new_draft_cache(*self._size)
            self.model.prefill(self._cache, self._readable(tokens), counts)
            self._committed = counts  # (B,) tokens but the pending one
        else:
            self._committed = self._committed + counts
            self._cache.roll_back(self._committed)

    @torch.no_grad()
    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """``k`` tokens a row, (B, k), of which ``count`` are meant; with their laws (B, k, V),
        unless they are greedy.
        """
        if self._cache is None:
            raise ValueError("A draft model has to be told of the prompt: call start and observe.")

        def next_logits(newest: Tensor, place: int) -> Tensor:
            logits = self._read(newest[:, None]) if place else self._catch_up(context)
            return self._over_target_ids(logits)  # (B, V)

        how = {"drafting": self.drafting, "min_confidence": self.min_confidence}
        return draft_chain(next_logits, context, k, sampling, randomness, **how)

    def _catch_up(self, context: Context) -> Tensor:
        """Reads the committed tokens that the cache lacks, the pending one last: logits (B, Vd)."""
        return self._read(*self._missing(context))

    def _missing(self, context: Context) -> tuple[Tensor, Tensor]:
        """The committed tokens that the cache lacks, (B, width), and how many there are, (B,)."""
        lengths = context.lengths.to(self.model.device)
        missing = lengths - self._cache.lengths  # (B,) one, or two where all was accepted
        width = 1 if self._shared is not None else self.catch_up
        if lengths.device.type == "cpu":  # reading costs nothing here, a second row does
            width = int(missing.max())
            self._cache.settle(int(self._cache.lengths.max()))
        places = self._cache.lengths[:, None] + torch.arange(width, device=lengths.device)
        tokens = context.tokens.to(self.model.device)
        return tokens.gather(1, places.clamp(max=tokens.shape[1] - 1)), missing

    def _read(self, tokens: Tensor, counts: Tensor | None = None) -> Tensor:
        """One forward over ``tokens`` (B, N), of which ``counts`` (B,) count: the model's logits
        behind the last of them, (B, Vd).
        """
        if counts is None:
            counts = torch.ones_like(self._cache.lengths)
        inputs = self._readable(tokens), (counts - 1)[:, None]
        logits = self._logits(*inputs).squeeze(1)
        self._cache.keep(None, counts)
        return logits

    def _logits(self, nodes: Tensor, places: Tensor) -> Tensor:
        """The model's logits (B, M, Vd) behind those of ``nodes`` (B, N), read behind the cache,
        that stand at ``places`` (B, M).
        """
        width = nodes.shape[1]
        return self._steps.run(self._read_step, self._cache, width, nodes, places)[0]

    def _read_step(self, cache: KVCache, nodes: Tensor, places: Tensor) -> tuple[Tensor]:
        model = self.model.model
        states, _ = model(nodes, cache)  # (B, N, H)
        if nodes.shape[1] > 1:
            states = states.gather(1, places[..., None].expand(-1, -1, states.shape[2]))
        return (model.head(states),)

    def _over_target_ids(self, logits: Tensor) -> Tensor:
        """(B, ..., Vd) to (B, ..., V): ids that only one of the models has are never drafted."""
        if self.vocab is not None:
            whole = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
            return whole.index_copy(-1, self.vocab.draft_to_target, logits)
        if logits.shape[-1] == self.num_shared == self.vocab_size:
            return logits
        missing = self.vocab_size - self.num_shared
        return F.pad(logits[..., : self.num_shared], (0, missing), value=-torch.inf)

    def _readable(self, tokens: Tensor) -> Tensor:
        """Tokens on the model's device; ids that its table lacks are read as its last one."""
        return tokens.to(self.model.device).clamp(max=self.model.vocab_size - 1)


def _draft_of(target: Target, model: str | os.PathLike | Target) -> Target:
    if isinstance(model, Target):
        return model
    if model in LOW_BITS:
        return low_bit_copy(target, LOW_BITS[model])
    if model == TRAINED or Path(model).suffix == ".safetensors":
        return load_short_model(target, shipped(METHOD) if model == TRAINED else Path(model))
    return load_target(model, dtype=target.dtype, device=target.device)


def _twin_card(draft: Target) -> dict[str, float]:
    """The card of a rounded copy, which nobody had to train; {} for another model."""
    products = [m for m in draft.model.modules() if isinstance(m, LowBitLinear)]
    if not products:
        return {}
    shapes = [(product.whole.in_features, product.whole.out_features) for product in products]
    size = {
        "parameters": sum(map(math.prod, shapes)),
        "megabytes": sum(product.num_bytes for product in products) / 1e6,
    }
    return size | {"training_tokens": 0, "tokens_seen": 0, "training_minutes": 0}


def check_same_tokenizer(target: Target, draft: Target) -> None:
    """ValueError naming an id that differs, unless both models mean the same by every id.

    Widths may differ: tables are padded. A model without a tokenizer is taken at its word.
    """
    ours, theirs = target.tokenizer, draft.tokenizer
    if ours is theirs or ours is None or theirs is None:
        return
    mine, other = ({i: t for t, i in tok.get_vocab().items()} for tok in (ours, theirs))
    for number in sorted(mine.keys() | other.keys()):
        if mine.get(number) != other.get(number):
            raise ValueError(
                f"{draft.name} has another tokenizer than {target.name}: id {number} is "
                f"{other.get(number)!r} there and {mine.get(number)!r} here; take a draft model "
                "of the same family, or see notebook 17."
            )


def _num_shared_ids(target: Target, draft: Target) -> int:
    """Ids below this mean a token to both models; what lies above pads a table, and is never
    drafted.
    """
    widths = [target.vocab_size, draft.vocab_size]
    if target.tokenizer is not None:
        widths.append(max(target.tokenizer.get_vocab().values()) + 1)
    return min(widths)
