"""What a draft learns from: the target's hidden states and laws on texts, streamed in batches.

Both are kept in the user's cache folder in 16 bits (about 1.2 KB a token and layer), one small file
a text. The states of the target's own answers are written down while it answers (`generate.py`);
those of other texts are computed when they are first asked for, one forward pass a text. So a run
that was killed and the next method read them again. They can be deleted at any time, and are never
part of the repository.

Rows of a batch are padded, never packed: no text ever sees another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
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
    """Computes, keeps and finds the states of ``layers`` and the laws of one target on texts.

    Of a text of T tokens they are those of the first T - 1: what follows the last is not part of
    the text. ``reader`` computes them where it is not the target itself, such as its copy with
    products in 16 bits. What is computed has the states of the layers ``also`` too, for later.
    """

    def __init__(
        self,
        target: Target,
        layers: Sequence[int],
        folder: Path | None = None,
        top: int = TOP,
        reader: Target | None = None,
        also: Iterable[int] = (),
    ) -> None:
        self.target, self.layers = target, tuple(layers)
        self.reader = reader or target
        self.computed = sorted({*layers, *also})
        self.top = min(top, target.vocab_size)
        self.folder = (folder or cache_folder() / "states") / f"{target_hash(target)}-top{top}"

    def of(self, ids: Sequence[int], start: int = 0) -> dict[str, Tensor]:
        """``layer_<i>`` (T - 1, H), and ``ids`` and ``probs`` (T - 1 - start, K) of the laws behind
        the tokens from ``start`` on.
        """
        found = self._find(ids, start)
        if found is None:
            found = {"start": torch.tensor(start), **self._compute(ids, start)}
            self._write(ids, found)
        skipped = start - int(found["start"])
        laws = {name: found[name][skipped:] for name in ("ids", "probs")}
        return laws | {layer: found[layer] for layer in self._names(self.layers)}

    def keep(
        self, ids: Sequence[int], start: int, hidden: Mapping[int, Tensor], laws: TopLaw
    ) -> None:
        """Keep what someone else found: states (T - 1, H) by layer, and the laws (T - 1 - start, K)
        in target ids, see `top_laws`.
        """
        found = {f"layer_{i}": _half(states) for i, states in hidden.items()}
        self._write(ids, {"start": torch.tensor(start), **found, **_stored(laws)})

    def _path(self, ids: Sequence[int]) -> Path:
        key = hashlib.sha256(np.asarray(ids, dtype=np.int64).tobytes()).hexdigest()[:32]
        return self.folder / key[:2] / f"{key}.safetensors"

    def _find(self, ids: Sequence[int], start: int) -> dict[str, Tensor] | None:
        """What is kept of a text, if it has all layers and every law from ``start`` on."""
        try:
            with safe_open(self._path(ids), framework="pt") as file:
                if int(file.get_tensor("start")) > start:
                    return None
                names = ("start", "ids", "probs", *self._names(self.layers))
                return {name: file.get_tensor(name) for name in names}
        except (FileNotFoundError, SafetensorError):  # never computed, lacks a layer, or cut off
            return None

    def _write(self, ids: Sequence[int], found: Mapping[str, Tensor]) -> None:
        path = self._path(ids)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")  # two runs may want the same text
        save_file({name: tensor.cpu().contiguous() for name, tensor in found.items()}, part)
        part.replace(path)

    @staticmethod
    def _names(layers: Iterable[int]) -> list[str]:
        return [f"layer_{i}" for i in layers]

    @torch.no_grad()
    def _compute(self, ids: Sequence[int], start: int) -> dict[str, Tensor]:
        model, last = self.reader.model, self.target.num_layers
        tokens = torch.tensor([list(ids)[:-1]], device=self.target.device)
        states, hidden = model(tokens, None, {*self.computed, last})
        logits = model.head(states[0, start:])  # (T - 1 - start, V)
        layers = {f"layer_{i}": _half(hidden[i][0]) for i in self.computed}
        return layers | _stored(top_laws(logits, self.top))


def top_laws(logits: Tensor, top: int = TOP) -> TopLaw:
    """The ``top`` most probable tokens of the laws of ``logits`` (..., V), in target ids."""
    best = logits.float().topk(min(top, logits.shape[-1]))
    return TopLaw(best.indices, (best.values - logits.float().logsumexp(-1, keepdim=True)).exp())


def _stored(laws: TopLaw) -> dict[str, Tensor]:
    return {"ids": laws.ids.int(), "probs": laws.probs.half()}


def _half(states: Tensor) -> Tensor:
    return states.clamp(-LARGEST, LARGEST).half()


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
        start = 0 if self.learn_prompts or not text.prompt else len(text.prompt) - 1
        found = self.states.of(ids, start)
        judged = torch.zeros(len(ids), dtype=torch.bool)  # (T,)
        judged[start:-1] = True
        laws = (self.vocab.to_draft(found["ids"].long()), found["probs"].float())
        laws = tuple(F.pad(part, (0, 0, start, 1)) for part in laws)  # (T, K)
        hidden = {
            i: F.pad(found[f"layer_{i}"], (0, 0, 0, 1)).to(self.states.target.dtype)  # (T, H)
            for i in self.states.layers
        }
        return torch.tensor(ids), judged, laws, hidden


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
