"""The one loop that all heads on features draft with: true features where the target has been, the
head's own ones beyond.

With committed tokens t_0 .. t_n, of which t_n is pending, the target has read t_0 .. t_{n-1}, so
it has the features f_0 .. f_{n-1}. The pairs (f_0, t_1) .. (f_{n-1}, t_n) are then true, and the
head's law behind the last one is that of t_{n+1}. A step reads the true pairs that came new, all in
one forward, then depth by depth pairs of a feature that the head made itself and the token that it
drafted (Li et al. 2024, arXiv 2401.15077). Those are forgotten once the target has judged.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.low_bit import drafting_copy
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import PREFILL_BLOCK, Target
from specdec_lab.decoding.tree import ancestors
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.chain import checked_confidence, checked_drafting, draft_chain
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.feature_head import FeatureHead, load_head
from specdec_lab.proposers.tree_expansion import TreeShape, draft_tree
from specdec_lab.proposers.weights import card_of, shipped

CHAIN, TREE = 3, 12  # tokens drafted when nobody says how many


class FeatureDraft(Proposer):
    """Drafts chains, or trees of a ``shape``, with a head on the target's features.

    ``weights`` is a file written by training, or a head itself with its ``vocab``; left out, the
    weights of ``head_class`` that came with the project. ``drafting`` and ``min_confidence`` are as
    in `DraftModel`, the latter for chains alone. Raises OSError when there are no weights and
    ValueError when they are for another head, shape or tokenizer.

    Between steps the cache holds the true pairs of every row that were read, and behind them what
    was drafted last, to be forgotten. ``_longest`` bounds the features of a row and ``_unread`` the
    true pairs that its cache lacks; neither is read from the device. A row whose prompt is one
    token has no pair yet: its first draft starts from the mean feature, and is forgotten too.
    """

    def __init__(
        self,
        target: Target,
        head_class: type[FeatureHead],
        weights: str | os.PathLike | FeatureHead | None = None,
        vocab: DraftVocab | None = None,
        drafting: str = "probabilistic",
        num_speculative_tokens: int | None = None,
        min_confidence: float = 0.0,
        shape: TreeShape | None = None,
    ) -> None:
        self.drafting = checked_drafting(drafting)
        self.min_confidence = checked_confidence(min_confidence)
        if num_speculative_tokens is None:
            num_speculative_tokens = TREE if shape else CHAIN
        self.default_k = whole_number("num_speculative_tokens", num_speculative_tokens, least=0)
        if shape and min_confidence:
            raise ValueError("min_confidence ends chains early; leave it out for trees.")
        if isinstance(weights, FeatureHead):
            head = weights
        else:
            path = Path(weights) if weights else shipped(head_class.method)
            head, vocab = load_head(head_class, target, path)
            self.card = card_of(path)
        if not isinstance(head, head_class):
            raise ValueError(f"This drafts with a head of {head_class.method}, not {head.method}.")
        self.head = drafting_copy(head).eval()
        self._steps = target.steps_of(self.head)
        self.vocab = vocab.to(target.device)
        self.vocab_size = target.vocab_size
        self.hidden_layers = head.hidden_layers
        self.shape = shape
        self._cache = self._features = None

    def start(self, batch_size: int, max_length: int) -> None:
        """Nothing is known yet; what earlier requests left is gone."""
        room = max_length + (self.shape.most_read if self.shape else 0)
        self._cache = None  # its storage is free for the next one
        self._cache = self._steps.new_draft_cache(batch_size, room)
        self._num_true = torch.zeros_like(self._cache.lengths)  # (B,) true pairs that were read
        self._features = None

    @torch.no_grad()
    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Takes the true features of the tokens kept; the first time it reads the prompt."""
        features = self.head.features(hidden)  # (B, M, H)
        width = features.shape[1]
        if self._features is None:
            self._features = TrueFeatures(features, self._cache.capacity)
            self._longest, self._unread = width, 1
            self._read_prompt(features, tokens, counts)
        else:
            kept = min(width, self.shape.deepest + 1) if self.shape else width
            self._longest, self._unread = self._longest + kept, self._unread + kept
        self._features.append(features, counts)

    @torch.no_grad()
    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """A chain of ``k`` tokens, or a tree of at most ``k`` nodes, a row; with their laws over
        the draft vocabulary, unless they are greedy.
        """
        if self._features is None:
            raise ValueError("A head on features needs the target's: call start and observe.")
        if k == 0:
            return Draft.empty(len(context.lengths), context.lengths.device)
        features, logits = self._catch_up(context)
        if self.shape:
            return self._draft_tree(features, logits, context, k, sampling, randomness)
        return self._draft_chain(features, logits, context, k, sampling, randomness)

    # --- True pairs -------------------------------------------------------------------------------

    def _read_prompt(self, features: Tensor, tokens: Tensor, counts: Tensor) -> None:
        """Reads the prompt's pairs but the last of each row, whose token is pending."""
        real = torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None]  # (B, P)
        tokens, num_pairs = tokens.where(real, 0), tokens.shape[1] - 1
        for start in range(0, num_pairs, PREFILL_BLOCK):
            end = min(start + PREFILL_BLOCK, num_pairs)
            self.head(features[:, start:end], tokens[:, start + 1 : end + 1], self._cache)
            self._cache.keep(None, torch.full_like(counts, end - start))
        self._cache.lengths = self._num_true = (counts - 1).clamp(min=0)

    def _catch_up(self, context: Context) -> tuple[Tensor, Tensor]:
        """Forgets what was drafted and reads the true pairs that came new, the pending token in the
        last: its next feature (B, 1, H), and the logits (B, Vd) of the token behind it.

        A row that has ended reads its last pair again.
        """
        self._forget(context)
        missing = (context.lengths - 1 - self._cache.lengths).clamp(min=1)  # (B,)
        width = max(self._unread, 1)
        if may_read(missing.device):
            width = int(missing.max())
        places = self._cache.lengths[:, None] + torch.arange(width, device=missing.device)
        behind = torch.minimum(places + 1, context.lengths[:, None] - 1)
        tokens = context.tokens.gather(1, behind)  # (B, width)
        found = self._read(self._features.at(places), tokens, (missing - 1)[:, None])
        self._cache.keep(None, missing)
        self._num_true, self._unread = context.lengths - 1, 0
        return found

    def _read(self, features: Tensor, tokens: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Reads pairs of ``features`` (B, N, H) and ``tokens`` (B, N): the next feature (B, 1, H),
        and the logits (B, Vd), of the pair at ``last`` (B, 1).
        """
        steps, width = self._steps, tokens.shape[1]
        found, logits = steps.run(self._chain_step, self._cache, width, features, tokens, last)
        return found, logits.squeeze(1)

    def _chain_step(
        self, cache: KVCache, features: Tensor, tokens: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor]:
        features, states = self.head(features, tokens, cache)
        last = last[..., None].expand(-1, -1, features.shape[2])
        return features.gather(1, last), self.head.logits(states.gather(1, last))

    def _forget(self, context: Context) -> None:
        """Back to the true pairs; to one fewer where the row did not grow."""
        self._cache.roll_back(torch.minimum(self._num_true, context.lengths - 2))
        lengths = self._cache.lengths
        longest = int(lengths.max()) if may_read(lengths.device) else self._longest
        self._cache.settle(min(longest, self._cache.capacity))

    # --- Drafted pairs ----------------------------------------------------------------------------

    def _draft_chain(
        self,
        features: Tensor,
        logits: Tensor,
        context: Context,
        k: int,
        sampling: Sampling,
        randomness: Randomness,
    ) -> Draft:
        """From the feature (B, 1, H) and the logits (B, Vd) behind the pending token."""
        only = torch.zeros_like(context.lengths)[:, None]  # (B, 1), of one pair

        def next_logits(newest: Tensor, place: int) -> Tensor:
            nonlocal features
            if place == 0:
                return logits
            features, next_ones = self._read(features, newest[:, None], only)
            self._cache.keep(None, torch.ones_like(newest))
            return next_ones

        how = {"drafting": self.drafting, "min_confidence": self.min_confidence}
        return draft_chain(next_logits, context, k, sampling, randomness, self.vocab, **how)

    def _draft_tree(
        self,
        features: Tensor,
        logits: Tensor,
        context: Context,
        k: int,
        sampling: Sampling,
        randomness: Randomness,
    ) -> Draft:
        """The same; a node is read with the feature that was made of its parent."""
        made = features  # (B, 1 + nodes read, H), the root's first

        def extend(fed: Draft, width: int) -> Tensor:
            nonlocal made
            above = fed.parents[:, -width:] + 1  # (B, width)
            features = made.gather(1, above[..., None].expand(-1, -1, made.shape[2]))
            seen = ancestors(fed.parents)[:, -width:, 1:]  # (B, width, M)
            inputs = features, fed.tokens[:, -width:], seen
            features, logits = self._steps.run(self._tree_step, self._cache, seen.shape[2], *inputs)
            made = torch.cat((made, features), dim=1)
            return logits

        return draft_tree(
            logits,
            extend,
            context,
            k,
            sampling,
            randomness,
            self.shape,
            vocab_size=self.vocab_size,
            vocab=self.vocab,
            greedy=self.drafting == "greedy",
        )

    def _tree_step(
        self, cache: KVCache, features: Tensor, tokens: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        features, states = self.head(features, tokens, cache, seen)
        return features, self.head.logits(states)


def may_read(device: torch.device) -> bool:
    """Whether a number may be read on the host: it costs nothing on a CPU, where every pair that
    need not be read saves time.
    """
    return device.type == "cpu"


class TrueFeatures:
    """The features of all tokens that the target has read, (B, capacity, H) with a count (B,) for
    every row; 0, the mean feature, behind them.
    """

    def __init__(self, like: Tensor, capacity: int) -> None:
        batch_size, _, hidden = like.shape
        self._rows = torch.arange(batch_size, device=like.device)[:, None] * capacity  # (B, 1)
        self._spill = batch_size * capacity  # takes what is not kept
        self._capacity = capacity
        self._all = like.new_zeros(self._spill + 1, hidden)
        self._counts = torch.zeros_like(self._rows[:, 0])  # (B,)

    def append(self, features: Tensor, counts: Tensor) -> None:
        """Adds the first ``counts`` (B,) of ``features`` (B, M, H) to each row."""
        place = torch.arange(features.shape[1], device=features.device)
        slots = self._rows + self._counts[:, None] + place  # (B, M)
        slots = slots.masked_fill(place >= counts[:, None], self._spill)
        self._all.index_copy_(0, slots.flatten(), features.flatten(0, 1))
        self._counts = self._counts + counts

    def at(self, places: Tensor) -> Tensor:
        """The features at ``places`` (B, W) of every row: (B, W, H)."""
        return self._all[self._rows + places.clamp(max=self._capacity - 1)]
