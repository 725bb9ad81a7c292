"""What a draft learns from: the target's hidden states and laws on texts, streamed in batches.

Both are computed once from the float32 target, one forward pass a text, and kept in the user's
cache folder in 16 bits (about 1.5 KB a token and layer), one small file a text: so a run that was
killed, a grown corpus and the next method read them again instead of computing them. They can be
deleted at any time, and are never part of the repository.

Rows of a batch are padded, never packed: no text ever sees another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from specdec_lab.decoding.store import cache_folder
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.weights import target_hash
from specdec_lab.training.losses import TopLaw

TOP = 64  # tokens of each law that are kept
LARGEST = torch.finfo(torch.float16).max


class Text(Protocol):
    """A prompt and its answer in token ids; losses and measurements look at the answer."""

    prompt: Sequence[int]
    answer: Sequence[int]
    domain: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Some texts, the target's states on them, and its law behind every token."""

    tokens: Tensor  # (B, T), padded with 0
    judged: Tensor  # (B, T) bool: the law behind this token counts
    law: TopLaw  # (B, T, K) in draft ids
    hidden: dict[int, Tensor]  # layer -> (B, T, H)

    def anchors(self) -> tuple[Tensor, Tensor]:
        """Rows and places (N,) of the states that drafts start from.

        A draft from place i has read tokens 0..i and the pending token i + 1; its first token is
        judged by the law behind i + 1.
        """
        return torch.nonzero(self.judged[:, 1:], as_tuple=True)

    def judged_at(self, depth: int) -> tuple[TopLaw, Tensor]:
        """For drafted token ``depth`` (0 is the first) of every anchor: the law (N, K) that judges
        it, and whether there is one, (N,).
        """
        rows, places = self.read_at(depth)
        inside = self.anchors()[1] + 1 + depth < self.tokens.shape[1]
        return self.law[rows, places], self.judged[rows, places] & inside

    def token_at(self, depth: int) -> Tensor:
        """The token (N,) that drafted token ``depth`` follows: the pending one at depth 0."""
        return self.tokens[self.read_at(depth)]

    def read_at(self, depth: int) -> tuple[Tensor, Tensor]:
        """Rows and places (N,) of these tokens; the last place of a row where it has no more."""
        rows, places = self.anchors()
        return rows, (places + 1 + depth).clamp(max=self.tokens.shape[1] - 1)


class TargetStates:
    """Computes, keeps and finds the states of ``layers`` and the laws of one target on texts."""

    def __init__(
        self, target: Target, layers: Sequence[int], folder: Path | None = None, top: int = TOP
    ) -> None:
        self.target, self.layers = target, tuple(layers)
        self.top = min(top, target.vocab_size)
        name = "-".join(map(str, (target_hash(target), *self.layers, f"top{self.top}")))
        self.folder = (folder or cache_folder() / "states") / name

    def of(self, ids: Sequence[int]) -> dict[str, Tensor]:
        """For every token of a text: ``layer_<i>`` (T, H), ``ids`` and ``probs`` (T, K) of the law
        behind it.
        """
        key = hashlib.sha256(np.asarray(ids, dtype=np.int64).tobytes()).hexdigest()[:32]
        path = self.folder / key[:2] / f"{key}.safetensors"
        try:
            return load_file(path)
        except (FileNotFoundError, SafetensorError):  # never computed, or cut off by a crash
            found = self._compute(ids)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        save_file(found, part)
        part.replace(path)
        return found

    @torch.no_grad()
    def _compute(self, ids: Sequence[int]) -> dict[str, Tensor]:
        model, last = self.target.model, self.target.num_layers
        tokens = torch.tensor([list(ids)], device=self.target.device)
        _, hidden = model(tokens, None, {*self.layers, last})
        kept = {i: hidden[i][0].clamp(-LARGEST, LARGEST).half() for i in {*self.layers, last}}
        logits = model.head(kept[last].to(self.target.dtype)).float()  # (T, V)
        best = logits.topk(self.top)
        probs = (best.values - logits.logsumexp(-1, keepdim=True)).exp()
        laws = {"ids": best.indices.int().cpu(), "probs": probs.half().cpu()}
        return laws | {f"layer_{i}": kept[i].cpu() for i in self.layers}


class Texts:
    """Texts with their states: batches of about ``positions`` tokens, whole texts each.

    ``learn_prompts`` has the laws inside prompts count too. Texts of fewer than two tokens say
    nothing and are left out. Raises ValueError without any other.
    """

    def __init__(
        self,
        texts: Sequence[Text],
        states: TargetStates,
        vocab: DraftVocab,
        positions: int = 300,
        learn_prompts: bool = False,
    ) -> None:
        texts = [text for text in texts if len(text.prompt) + len(text.answer) > 1]
        if not texts:
            raise ValueError("There is no text to learn from: run 'train corpus' first.")
        self.texts, self.states, self.vocab = texts, states, vocab
        self.positions, self.learn_prompts = positions, learn_prompts

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(len(text.answer) for text in self.texts)

    def hash(self) -> str:
        """A fingerprint of the texts, of how they are read and of what can be drafted."""
        digest = hashlib.sha256(json.dumps([self.positions, self.learn_prompts]).encode())
        digest.update(self.vocab.draft_to_target.cpu().numpy().tobytes())
        for text in self.texts:
            for part in (text.prompt, text.answer):
                digest.update(np.asarray(part, dtype=np.int64).tobytes() + b"|")
        return digest.hexdigest()[:16]

    def endless(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """Batch ``start``, ``start + 1``, ...: every text once an epoch, in an order of its own.

        Batch n depends on ``seed`` and n alone, so a resumed run sees what the whole one would.
        """
        for group in islice(self._endless_groups(seed), start, None):
            yield self.batch(group)

    def once(self) -> Iterator[Batch]:
        """All texts once, in their order."""
        for group in self._grouped(range(len(self.texts))):
            yield self.batch(group)

    def _endless_groups(self, seed: int) -> Iterator[list[int]]:
        epoch = 0
        while True:
            order = np.random.default_rng((seed, epoch)).permutation(len(self.texts))
            yield from self._grouped(order.tolist())
            epoch += 1

    def _grouped(self, order: Sequence[int]) -> Iterator[list[int]]:
        group, size = [], 0
        for number in order:
            text = self.texts[number]
            group.append(number)
            size += len(text.prompt) + len(text.answer)
            if size >= self.positions:
                yield group
                group, size = [], 0
        if group:
            yield group

    def batch(self, numbers: Sequence[int]) -> Batch:
        """These texts as one batch, on the target's device."""
        device = self.states.target.device
        rows = [self._row(self.texts[number]) for number in numbers]
        tokens, judged, laws = (_padded([row[i] for row in rows], device) for i in range(3))
        law = TopLaw(*laws)
        hidden = _padded([row[3] for row in rows], device)
        return Batch(tokens, judged, law, hidden)

    def _row(self, text: Text) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], dict[int, Tensor]]:
        ids = [*text.prompt, *text.answer]
        found = self.states.of(ids)
        tokens = torch.tensor(ids)  # (T,)
        judged = torch.arange(len(ids)) >= (0 if self.learn_prompts else len(text.prompt) - 1)
        judged[-1] &= ids[-1] not in self.states.target.eos_ids  # nothing follows an end token
        law = (self.vocab.to_draft(found["ids"].long()), found["probs"].float())
        hidden = {i: found[f"layer_{i}"].to(self.states.target.dtype) for i in self.states.layers}
        return tokens, judged, law, hidden


def _padded(rows: Sequence, device: torch.device) -> object:
    """Rows of unequal length (T, ...) as one tensor (B, longest, ...), parts of tuples and values
    of dictionaries each for itself.
    """
    first = rows[0]
    if isinstance(first, dict):
        return {key: _padded([row[key] for row in rows], device) for key in first}
    if isinstance(first, tuple):
        return tuple(_padded(parts, device) for parts in zip(*rows, strict=True))
    return pad_sequence(rows, batch_first=True).to(device)
