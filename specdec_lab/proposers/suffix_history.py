"""The global history of suffix decoding: earlier texts, and a suffix array to look them up in.

The array sorts all positions of all texts by what stands *before* them, read backwards. So the
places that end like a row does stand side by side, next to where the row itself would stand, and
one binary search finds them. It is rebuilt between requests and never changes during one.
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

MAX_TOKENS, MAX_REQUESTS = 100_000, 10_000
NOTHING, UNKNOWN, ABOVE_ALL = -1, -2, 2**62  # between texts, before a row's start, padding
FORMAT = {"format": "specdec_lab suffix history 1"}


class History:
    """Texts in the order they came; beyond a budget of tokens or of texts the oldest are dropped.

    Of a text longer than the budget only its last tokens are kept. A budget of 0 keeps nothing.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, max_requests: int = MAX_REQUESTS) -> None:
        self.max_tokens = whole_number("max_tokens", max_tokens, least=0)
        self.max_requests = whole_number("max_requests", max_requests, least=0)
        self.num_tokens = 0
        self._texts: deque[Tensor] = deque()
        self._index: Index | None = None

    @property
    def texts(self) -> list[list[int]]:
        """All texts, the oldest first."""
        return [text.tolist() for text in self._texts]

    def remember(self, tokens: Sequence[int] | Tensor) -> None:
        """Add a text, a sequence of token ids; ValueError for anything else."""
        text = torch.as_tensor(tokens, dtype=torch.long).detach().cpu().clone()
        if text.ndim != 1 or (text < 0).any():
            raise ValueError("A text to remember must be one list of token ids, none below 0.")
        if self.max_requests:
            self._add(text[max(len(text) - self.max_tokens, 0) :])

    def _add(self, text: Tensor) -> None:
        if not len(text):
            return
        self._texts.append(text)
        self.num_tokens += len(text)
        while self.num_tokens > self.max_tokens or len(self._texts) > self.max_requests:
            self.num_tokens -= len(self._texts.popleft())
        self._index = None

    def index(self, depth: int, device: torch.device | None = None) -> Index | None:
        """The suffix array over all texts, comparing ``depth`` tokens; None if nothing is there.

        Built when asked for after a change, else kept; moved to ``device`` if that is named.
        """
        if not self._texts:
            return None
        if self._index is None or self._index.depth != depth:
            self._index = Index.build(list(self._texts), depth)
        if device is not None and self._index.text.device != device:
            self._index = self._index.to(device)
        return self._index

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

    ``order`` is padded to one less than a power of two, so that the search needs no bounds.
    """

    text: Tensor  # (T,) all texts, NOTHING between them, ABOVE_ALL at the end
    order: Tensor  # (2^h - 1,)
    num_places: int
    depth: int

    @staticmethod
    def build(texts: list[Tensor], depth: int) -> Index:
        """Sorts by prefix doubling: after i rounds by 2^i tokens, until ``depth`` are compared."""
        gap = torch.tensor([NOTHING])
        pieces = [piece for text in texts for piece in (gap, text)]
        text = torch.cat([*pieces, gap, torch.tensor([ABOVE_ALL])])
        rank, compared = text.unique(return_inverse=True)[1], 1
        while compared < depth:
            earlier = rank.new_zeros(rank.shape)
            earlier[compared:] = rank[:-compared]
            rank = (rank * len(rank) + earlier).unique(return_inverse=True)[1]
            compared *= 2
        places = ((text[:-1] >= 0) & (text[1:] >= 0)).nonzero().squeeze(1)
        order = places[rank[places].argsort(stable=True)]
        spare = 2 ** max(len(places).bit_length(), 1) - 1 - len(places)
        order = torch.cat([order, torch.full((spare,), len(text) - 1)])
        return Index(text, order, len(places), depth)

    def to(self, device: torch.device) -> Index:
        """The same index on a device."""
        return Index(self.text.to(device), self.order.to(device), self.num_places, self.depth)

    def find(self, tails: Tensor, num_places: int) -> tuple[Tensor, Tensor]:
        """The places that end most like the rows: positions and match lengths, both (B, R).

        ``tails`` (B, depth) holds each row's last tokens, the last one first, UNKNOWN beyond its
        start. Longest match first, then the latest. Where more than ``num_places`` match equally
        well, those whose past is the most similar in sorting order stand for all.
        """
        back = torch.arange(self.depth, device=tails.device)
        start = self._count_below(tails, back)
        around = torch.arange(-num_places, num_places, device=tails.device)
        around = start[:, None] + around  # (B, 2R)
        inside = (around >= 0) & (around < self.num_places)
        places = self.order[around.clamp(0, self.order.shape[0] - 1)]
        past = self.text[(places[..., None] - back).clamp(min=0)]  # (B, 2R, depth)
        matched = match_length(past == tails[:, None]) * inside
        size = self.text.shape[0]
        best = (matched * size + places).topk(num_places).values  # (B, R)
        return best % size, best.div(size, rounding_mode="floor")

    def _count_below(self, tails: Tensor, back: Tensor) -> Tensor:
        """How many sorted positions stand before each tail, (B,): one binary search for all."""
        weights = 2 ** (self.depth - 1 - back)  # the first difference outweighs all later ones
        below = tails.new_zeros(tails.shape[0])
        step = (self.order.shape[0] + 1) // 2
        while step:
            place = self.order[below + step - 1]  # (B,)
            past = self.text[(place[:, None] - back).clamp(min=0)]  # (B, depth)
            smaller = ((past - tails).sign() * weights).sum(1) < 0
            below = below + smaller * step
            step //= 2
        return below


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
        if (tokens < 0).any() or (lengths < 1).any():
            raise SafetensorError("a number in it is too small")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is no suffix history ({error}); delete it and save a new one."
        ) from error
    return tokens, lengths
