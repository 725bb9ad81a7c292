"""The global history of suffix decoding: earlier texts, and a suffix array to look them up in.

The array sorts all positions of all texts by what stands *before* them, read backwards. So the
places that end like a row does stand side by side, next to where the row itself would stand, and
a few binary searches find them. It is rebuilt between requests and never changes during one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specdec_lab.decoding.request import whole_number
from specdec_lab.proposers.suffix_automaton import Automaton

MAX_TOKENS, MAX_REQUESTS = 100_000, 10_000
NOTHING, UNKNOWN = -1, -2  # between texts, and before the start of a row
WORD, BITS = 3, 21  # tokens packed into one int64, and the bits of each
LARGEST = 2**BITS - 3
FORMAT = {"format": "specdec_lab suffix history 1"}


class History:
    """Texts in the order they came; beyond a budget of tokens or of texts the oldest are dropped, a
    quarter of the budget at once.

    Of a text longer than the budget only its last tokens are kept. A budget of 0 keeps nothing.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, max_requests: int = MAX_REQUESTS) -> None:
        self.max_tokens = whole_number("max_tokens", max_tokens, least=0)
        self.max_requests = whole_number("max_requests", max_requests, least=0)
        self.num_tokens = 0
        self._texts: deque[Tensor] = deque()
        self._index: Index | None = None
        self._automaton: Automaton | None = None
        self._unread: list[Tensor] = []  # texts that the automaton lacks

    @property
    def texts(self) -> list[list[int]]:
        """All texts, the oldest first."""
        return [text.tolist() for text in self._texts]

    def remember(self, tokens: Sequence[int] | Tensor) -> None:
        """Add a text, a sequence of token ids; ValueError for anything else."""
        text = torch.as_tensor(tokens, dtype=torch.long).detach().cpu().clone()
        if text.ndim != 1 or ((text < 0) | (text > LARGEST)).any():
            raise ValueError(f"A text to remember must be one list of ids from 0 to {LARGEST}.")
        if self.max_requests:
            self._add(text[max(len(text) - self.max_tokens, 0) :])

    def _add(self, text: Tensor) -> None:
        if not len(text):
            return
        self._texts.append(text)
        self._unread.append(text)
        self.num_tokens += len(text)
        self._index = None
        if self.num_tokens > self.max_tokens or len(self._texts) > self.max_requests:
            self._drop_the_oldest()

    def _drop_the_oldest(self) -> None:
        """A quarter of the budgets at once, as an automaton cannot forget and is built anew."""
        tokens, texts = (budget - budget // 4 for budget in (self.max_tokens, self.max_requests))
        while len(self._texts) > 1 and (self.num_tokens > tokens or len(self._texts) > texts):
            self.num_tokens -= len(self._texts.popleft())
        self._automaton, self._unread = None, list(self._texts)

    def index(self, depth: int, device: torch.device | None = None) -> Index | None:
        """The suffix array over all texts, comparing at least ``depth`` tokens; None if there is no
        place in them.

        Built when asked for after a change, else kept; moved to ``device`` if that is named.
        """
        if self.num_tokens == len(self._texts):  # at most one token each: nothing follows anything
            return None
        if self._index is None or self._index.depth < depth:
            self._index = Index.build(list(self._texts), depth)
        if device is not None and self._index.text.device != device:
            self._index = self._index.to(device)
        return self._index

    def automaton(self, depth: int) -> Automaton | None:
        """All texts read by an automaton of this depth; None if there is no text.

        It is kept, and reads new texts when it is asked for.
        """
        if not self._texts:
            return None
        if self._automaton is None or self._automaton.depth != depth:
            self._automaton, self._unread = Automaton(depth), list(self._texts)
        for text in self._unread:
            self._automaton.begin()
            self._automaton.read(text.tolist())
        self._unread = []
        return self._automaton

    def save(self, path: str | Path) -> None:
        """Write all texts to a safetensors file."""
        lengths = torch.tensor([len(text) for text in self._texts], dtype=torch.long)
        tokens = torch.cat([*self._texts, lengths[:0]]).int()
        save_file({"tokens": tokens, "lengths": lengths}, str(path), metadata=FORMAT)

    @classmethod
    def load(
        cls, path: str | Path, max_tokens: int = MAX_TOKENS, max_requests: int = MAX_REQUESTS
    ) -> History:
        """The history that `save` wrote, cut to the budgets; ValueError for any other file."""
        history = cls(max_tokens, max_requests)
        tokens, lengths = _read(Path(path))
        for text in tokens.long().split(lengths.tolist()):
            history.remember(text)
        return history


@dataclass(frozen=True, slots=True)
class Index:
    """The suffix array: positions of ``text`` that have a next token, sorted by what they end.

    What a position ends, its *past*, is read backwards in words of three tokens, then in pairs of
    words, pairs of pairs, ...: ``levels`` holds the different words or pairs, sorted. So a row is
    looked up in as many steps as there are levels. ``ranks`` are twice the ranks of the places.
    """

    text: Tensor  # (T,) all texts, NOTHING around them
    order: Tensor  # (P,)
    ranks: Tensor  # (P,)
    levels: tuple[Tensor, ...]

    @property
    def depth(self) -> int:
        """How many tokens are compared."""
        return WORD * 2 ** (len(self.levels) - 1)

    @staticmethod
    def build(texts: list[Tensor], depth: int) -> Index:
        """Sorts by prefix doubling, until at least ``depth`` tokens are compared."""
        gap = torch.tensor([NOTHING])
        text = torch.cat([piece for text in texts for piece in (gap, text)] + [gap])
        key = _packed(torch.stack([_moved(text, n, NOTHING) for n in range(WORD)], -1))
        levels, compared = [], WORD
        while True:
            level, rank = key.unique(return_inverse=True)
            levels.append(level)
            if compared >= depth:
                break
            key = _paired(2 * rank, 2 * _moved(rank, compared, rank[0]), level)
            compared *= 2
        places = ((text[:-1] >= 0) & (text[1:] >= 0)).nonzero().squeeze(1)
        ranks, order = (2 * rank[places]).sort(stable=True)
        return Index(text, places[order], ranks, tuple(levels))

    def to(self, device: torch.device) -> Index:
        """The same index on a device."""
        levels = tuple(level.to(device) for level in self.levels)
        return Index(self.text.to(device), self.order.to(device), self.ranks.to(device), levels)

    def find(self, tails: Tensor, num_places: int) -> tuple[Tensor, Tensor]:
        """The places that end most like the rows: positions and match lengths, both (B, R).

        ``tails`` (B, depth) holds each row's last tokens, the last one first, UNKNOWN beyond its
        start. Those with the longest match, the latest place first. Where more than ``num_places``
        match equally well, those whose past is the most similar in sorting order stand for all.
        """
        start = torch.searchsorted(self.ranks, self._rank(tails))
        around = torch.arange(-num_places, num_places, device=tails.device)
        around = start[:, None] + around  # (B, 2R)
        inside = (around >= 0) & (around < self.order.shape[0])
        places = self.order[around.clamp(0, self.order.shape[0] - 1)]
        back = torch.arange(self.depth, device=tails.device)
        past = self.text[(places[..., None] - back).clamp(min=0)]  # (B, 2R, depth)
        matched = match_length(past == tails[:, None]) * inside
        size = self.text.shape[0]
        best = (matched * size + places).topk(num_places).values  # (B, R)
        return latest_first(best % size, best.div(size, rounding_mode="floor"))

    def _rank(self, tails: Tensor) -> Tensor:
        """Twice the rank of each tail, (B,); what does not occur stands between: it is odd."""
        key = _packed(tails.unflatten(1, (-1, WORD)))  # (B, depth / WORD)
        for number, level in enumerate(self.levels):
            place = torch.searchsorted(level, key)
            known = level[place.clamp(max=level.shape[0] - 1)] == key
            rank = 2 * place - 1 + known
            if number < len(self.levels) - 1:
                key = _paired(rank[:, 0::2].contiguous(), rank[:, 1::2], level)
        return rank.squeeze(1)


def latest_first(places: Tensor, matched: Tensor) -> tuple[Tensor, Tensor]:
    """Places and their match lengths, both (B, R), with the latest place first."""
    places, order = places.sort(dim=1, descending=True)
    return places, matched.gather(1, order)


def _moved(values: Tensor, places: int, fill: int | Tensor) -> Tensor:
    """``values`` moved back by some places, ``fill`` where nothing is left."""
    return torch.cat([torch.zeros_like(values[:places]) + fill, values[: -places or None]])[
        : len(values)
    ]


def _packed(words: Tensor) -> Tensor:
    """Words of three tokens (..., 3) as one number each, in the same order."""
    first, second, third = (words - UNKNOWN).unbind(-1)
    return (first << 2 * BITS) + (second << BITS) + third


def _paired(first: Tensor, second: Tensor, level: Tensor) -> Tensor:
    """Two doubled ranks within a level as one number, in the order of pairs."""
    return first * (2 * level.shape[0] + 2) + second


def match_length(equal: Tensor) -> Tensor:
    """How many of the first entries along the last axis are all true."""
    return equal.long().cumprod(-1).sum(-1)


def _read(path: Path) -> tuple[Tensor, Tensor]:
    """The tokens and the lengths of a file, or ValueError with the reason in one sentence."""
    if not path.is_file():
        raise ValueError(f"There is no history {path}; save one first, or leave the option out.")
    try:
        with safe_open(str(path), framework="pt") as stored:
            if (stored.metadata() or {}) != FORMAT:
                raise SafetensorError("another kind of safetensors file")
            tokens, lengths = stored.get_tensor("tokens"), stored.get_tensor("lengths")
        if tokens.ndim != 1 or lengths.ndim != 1 or lengths.sum() != len(tokens):
            raise SafetensorError("its lengths do not fit its tokens")
        if tokens.is_floating_point() or lengths.dtype != torch.long:
            raise SafetensorError("its numbers are not whole")
        if ((tokens < 0) | (tokens > LARGEST)).any() or (lengths < 1).any():
            raise SafetensorError("a number in it is out of range")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is no suffix history ({error}); delete it and save a new one."
        ) from error
    return tokens, lengths
