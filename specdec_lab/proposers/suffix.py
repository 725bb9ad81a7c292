"""Suffix decoding: copies from the row itself and from earlier answers, as far as it is sure.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975). Like n-gram it needs no model and no
training. Unlike n-gram it counts what followed *all* places that end like the row does, drafts
longer the longer the match is, stops where the counts disagree, and remembers earlier requests.
"""

from __future__ import annotations

from math import floor, inf
from pathlib import Path

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.suffix_automaton import Row
from specdec_lab.proposers.suffix_counts import best_path, blended_tree
from specdec_lab.proposers.suffix_history import (
    MAX_REQUESTS,
    MAX_TOKENS,
    UNKNOWN,
    History,
    latest_first,
    match_length,
)

TREE_DEPTH = 12  # levels of a drafted tree; the work grows with them
MAX_DEPTH_LIMIT = 64  # Arctic's default; longer matches are as good as sure


class Suffix(Proposer):
    """Drafts the most likely continuation of the row's last tokens, by counting.

    The counts come from two sources: the row itself (*local*) and the texts of `history`
    (*global*), the answers of earlier requests. For every match length m from ``min_match`` on,
    the places that match at least m tokens vote token by token; the draft may have

        min(k, floor(m * factor + offset), max_depth - m)

    tokens, and ends before the token whose chance, the product of the vote shares, is below
    ``min_token_prob``. The draft with the highest score, the sum of its chances, wins; ties go to
    the longer match, and to the local source; between tokens, to that of the latest place. See
    `suffix_counts` for what is counted: the row's own tail is not, as nothing follows it.

    On a CPU, where reading a tensor costs nothing, an automaton of each row and one of the history
    are walked token by token (`suffix_automaton`). On other devices all places are searched at once
    without a word to the host; there, of more than ``max_places`` places those with the longest
    match are counted, the latest of them. ``vectorised`` chooses one of the two everywhere.

    With ``tree`` the k likeliest nodes of the tree of continuations are drafted instead, down to
    ``min_token_prob``: places of all match lengths and both sources count together, a longer match
    for more (`blended_tree`), and ``factor`` and ``offset`` do not matter.

    `start` adds what the last run wrote to the history (all but a row's very last token, which no
    proposer is told), unless ``remember_outputs`` is off; `remember` adds any text. The history
    is fixed during a run. ``history`` is one to go on with, or
    the path of a saved one; else ``history_tokens`` and ``max_requests`` are its budgets.

    Raises ValueError for options out of range and for a file that is no history.
    """

    def __init__(
        self,
        max_depth: int = 24,
        factor: float = 1.0,
        offset: float = 0.0,
        min_token_prob: float = 0.1,
        min_match: int = 1,
        max_places: int = 64,
        history: History | str | Path | None = None,
        history_tokens: int = MAX_TOKENS,
        max_requests: int = MAX_REQUESTS,
        remember_outputs: bool = True,
        vectorised: bool | None = None,
        tree: bool = False,
        num_speculative_tokens: int = 8,
    ) -> None:
        self.max_depth = whole_number("max_depth", max_depth, least=2, most=MAX_DEPTH_LIMIT)
        self.min_match = whole_number("min_match", min_match, least=1, most=max_depth - 1)
        self.max_places = whole_number("max_places", max_places, least=1, most=1024)
        self.factor, self.offset = _number("factor", factor, 0), _number("offset", offset)
        self.min_token_prob = _number("min_token_prob", min_token_prob, 0, 1)
        self.default_k = whole_number("num_speculative_tokens", num_speculative_tokens, least=0)
        budgets = history_tokens, max_requests
        if isinstance(history, str | Path):
            history = History.load(history, *budgets)
        self.history = History(*budgets) if history is None else history
        self.remember_outputs, self.vectorised = remember_outputs, vectorised
        self.tree = tree
        self._heard: list[tuple[Tensor, Tensor]] = []
        self._copied: dict[tuple[torch.device, int], Tensor] = {}
        self._forget()

    def remember(self, tokens: list[int] | Tensor) -> None:
        """Add a text, such as an answer, to the global history; drafts use it from now on."""
        self.history.remember(tokens)

    def start(self, batch_size: int, max_length: int) -> None:
        """Forgets the rows, after adding what they wrote to the history."""
        if self.remember_outputs:
            for text in _written(self._heard):
                self.remember(text)
        self._heard = []
        self._forget()

    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Notes what was kept: it may have lengthened each row by so many tokens."""
        self._unseen += tokens.shape[1]
        if self.remember_outputs:
            self._heard.append((tokens, counts))

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """The best continuation as a chain, tokens (B, k), or as a tree; one-hot (no probs)."""
        if k == 0:
            return Draft.empty(len(context.lengths), context.lengths.device)
        if self.tree:
            return self._branch(context.tokens, context.lengths, k)
        on_host = context.tokens.device.type == "cpu"
        if on_host if self.vectorised is None else not self.vectorised:
            return self._walk(context, k)
        return self._search(context.tokens, context.lengths, k)

    def _walk(self, context: Context, k: int) -> Draft:
        """Row by row, a few steps of the automata for each new token."""
        lengths = context.lengths.tolist()
        if not self._follows(context.tokens):
            self._rows = self._rows_of(context.tokens, lengths)
        budgets = [0] * self.min_match + self._budgets(k)
        drafts = []
        for row, tokens, length in zip(self._rows, context.tokens, lengths, strict=True):
            row.read(tokens[len(row.tokens) : length].tolist())
            drafts.append(row.draft(budgets, self.min_token_prob))
        padded = [draft + [0] * (k - len(draft)) for draft in drafts]
        self._shape, self._unseen = context.tokens.shape, 0
        return Draft(torch.tensor(padded), torch.tensor([len(draft) for draft in drafts]))

    def _rows_of(self, tokens: Tensor, lengths: list[int]) -> list[Row]:
        """New rows, or those of the last call if it is repeated."""
        known = self.history.automaton(self.max_depth)
        texts = [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)]
        same = len(self._rows) == len(texts)
        if same and all(map(Row.has_read, self._rows, texts, [known] * len(texts))):
            return self._rows
        return [Row(self.max_depth, known) for _ in texts]

    def _follows(self, tokens: Tensor) -> bool:
        """Whether these are the rows of the last call, and `observe` told of new tokens."""
        return self._shape == tokens.shape and self._unseen > 0

    def _branch(self, tokens: Tensor, lengths: Tensor, k: int) -> Draft:
        """The likeliest nodes of the tree of continuations."""
        depth = min(k, TREE_DEPTH)
        sources = [self._local(tokens, lengths, depth), *self._global(tokens, lengths, depth)]
        matched, following = (torch.cat(parts, 1) for parts in zip(*sources, strict=True))
        matched = matched * (matched >= self.min_match)
        found = blended_tree(matched, following, k, self.min_token_prob)
        return Draft(found.tokens, found.count, parents=found.parents)

    def _search(self, tokens: Tensor, lengths: Tensor, k: int) -> Draft:
        """All rows, places and match lengths at once."""
        rows = tokens.shape[0]
        sources = [self._local(tokens, lengths, k), *self._global(tokens, lengths, k)]
        matched, following = (torch.cat(parts) for parts in zip(*sources, strict=True))
        match = torch.arange(self.min_match, self.max_depth, device=tokens.device)  # (M,)
        path = best_path(
            matched, following, match, self._budgets_on(tokens.device, k), self.min_token_prob
        )
        score = path.score.view(-1, rows)  # (1 or 2, B), the local one first
        best = torch.zeros_like(lengths)
        if len(sources) > 1:
            best = (score[1] > score[0]).long()
        pick = best * rows + torch.arange(rows, device=tokens.device)
        drafted, count = path.tokens[pick], path.count[pick]
        return Draft(drafted.clamp(min=0), count)

    def _budgets(self, k: int) -> list[int]:
        """How many tokens may be drafted for each match length from ``min_match`` on."""
        lengths = range(self.min_match, self.max_depth)
        wanted = (floor(m * self.factor + self.offset) for m in lengths)
        return [min(k, n, self.max_depth - m) for m, n in zip(lengths, wanted, strict=True)]

    def _budgets_on(self, device: torch.device, k: int) -> Tensor:
        """The same on a device, (M,): copied there once, as the queue would wait for a copy."""
        if (device, k) not in self._copied:
            self._copied[device, k] = torch.tensor(self._budgets(k), device=device)
        return self._copied[device, k]

    def _local(self, tokens: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Match lengths (B, R) and continuations (B, R, k) of the best places in the row itself."""
        width = tokens.shape[1]
        matched = self._match_lengths(tokens, lengths).clamp(max=self.max_depth - 1)
        order = torch.arange(width, device=tokens.device)
        ranked = matched * width + order  # (B, L)
        if width < self.max_places:
            ranked = torch.nn.functional.pad(ranked, (0, self.max_places - width))
        best = ranked.topk(self.max_places).values  # (B, R)
        places, matched = latest_first(best % width, best.div(width, rounding_mode="floor"))
        behind = places[..., None] + torch.arange(1, k + 1, device=tokens.device)
        found = tokens.gather(1, behind.clamp(max=width - 1).flatten(1)).view(behind.shape)
        following = torch.where(behind < lengths[:, None, None], found, -1)  # (B, R, k)
        return matched, following

    def _global(self, tokens: Tensor, lengths: Tensor, k: int) -> list[tuple[Tensor, Tensor]]:
        """The same of the best places in the history; an empty list if there is no history."""
        index = self.history.index(self.max_depth - 1, tokens.device)
        if index is None:
            return []
        places, matched = index.find(_tails(tokens, lengths, index.depth), self.max_places)
        behind = places[..., None] + torch.arange(1, k + 1, device=tokens.device)  # (B, R, k)
        found = index.text[behind.clamp(max=index.text.shape[0] - 1)]
        inside = (found >= 0).long().cumprod(-1)  # not beyond the end of its own text
        return [(matched.clamp(max=self.max_depth - 1), found * inside - (1 - inside))]

    def _match_lengths(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """How many tokens up to each position equal the row's last ones, (B, L).

        Followed token by token: one comparison of the row with each new token. Only after a start,
        or if nobody told of new tokens, everything is compared with the whole tail.
        """
        width = tokens.shape[1]
        if not self._follows(tokens) or self._unseen >= self.max_depth:
            self._matched = _all_match_lengths(tokens, lengths, self.max_depth - 1)
        else:
            columns = torch.arange(width, device=tokens.device)
            for ahead in range(self._unseen):
                place = (self._seen + ahead)[:, None]  # (B, 1)
                new = tokens.gather(1, place.clamp(max=width - 1))
                longer = self._matched.roll(1, dims=1) + 1
                longer = longer * ((tokens == new) & (columns < place))
                self._matched = torch.where(place < lengths[:, None], longer, self._matched)
        self._seen, self._shape, self._unseen = lengths, tokens.shape, 0
        return self._matched

    def _forget(self) -> None:
        self._matched: Tensor | None = None  # (B, L) for the first _seen (B,) tokens of each row
        self._seen: Tensor | None = None
        self._rows: list[Row] = []
        self._shape: torch.Size | None = None  # of the tokens of the last call
        self._unseen = 0  # at most so many tokens have come since


def _tails(tokens: Tensor, lengths: Tensor, depth: int) -> Tensor:
    """The last tokens of each row, the last one first, (B, depth); UNKNOWN beyond its start."""
    places = lengths[:, None] - 1 - torch.arange(depth, device=tokens.device)
    return torch.where(places >= 0, tokens.gather(1, places.clamp(min=0)), UNKNOWN)


def _all_match_lengths(tokens: Tensor, lengths: Tensor, depth: int) -> Tensor:
    """Match length of every position before the last, at most ``depth``, from scratch: (B, L)."""
    padded = torch.nn.functional.pad(tokens, (depth - 1, 0), value=-1)
    windows = padded.unfold(1, depth, 1).flip(-1)  # (B, L, depth), each position's past
    matched = match_length(windows == _tails(tokens, lengths, depth)[:, None])
    before = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None] - 1
    return matched * before


def _written(heard: list[tuple[Tensor, Tensor]]) -> list[list[int]]:
    """What each row wrote, from what `observe` was told of prompt and steps."""
    if len(heard) < 2:
        return []
    texts: list[list[int]] = [[] for _ in heard[0][1]]
    for tokens, counts in heard[1:]:
        for text, row, count in zip(texts, tokens.tolist(), counts.tolist(), strict=True):
            text.extend(row[:count])
    return [text[1:] for text in texts]  # the first one is the prompt's last token


def _number(name: str, value: object, least: float = -inf, most: float = inf) -> float:
    """``value`` as a float if it is a number in the bounds; else ValueError."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        above = f" of at least {least:g}" if least > -inf else ""
        bounds = f" from {least:g} to {most:g}" if most < inf else above
        raise ValueError(f"{name} must be a number{bounds}, not {value!r}.")
    return float(value)
