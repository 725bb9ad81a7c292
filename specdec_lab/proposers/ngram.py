"""Prompt lookup: what followed the last tokens when they stood in the text before.

Saxena's prompt lookup decoding (2023), "n-gram" in vLLM: no model and no training, only the copy
of a span that the text already holds. It shines where answers quote (summaries, edits, code).
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.base import Proposer

MIN_N, MAX_N = 1, 4  # when the caller names none; right where scored rows are nearly free
OCCURRENCES = ("last", "first", "most_frequent")


class NGram(Proposer):
    """Looks the row's last tokens up in the row itself and proposes what followed them there.

    A *place* is an earlier position that ends the same n tokens as the row does; it may overlap the
    row's tail. Only the places with the largest n in [``min_n``, ``max_n``] count, and
    ``occurrence`` chooses among them: the ``last``, the ``first``, or the ``most_frequent``: one
    whose next token is the most common next token, the latest such place if several are left.

    The draft is the ``min(k, what exists)`` tokens behind that place, nothing if no place exists;
    nothing is made up. So where the text repeats with a period p < k, ``last`` drafts only the p
    tokens up to the end, while ``first`` goes back to where the repetition began and drafts all k.
    End tokens are ordinary here: the decoding loop cuts behind them, for every proposer.

    Left out, ``min_n`` is 1 and ``max_n`` 4 (or ``min_n``, if that is more): many short matches are
    wrong, which costs little where five rows cost like one; with dear rows take 2. Raises
    ValueError for bounds below 1 or crossed, an unknown occurrence, a k that is no whole number.
    """

    def __init__(
        self,
        min_n: int | None = None,
        max_n: int | None = None,
        occurrence: str = "last",
        num_speculative_tokens: int = 4,
    ) -> None:
        self.min_n, self.max_n = _bounds(min_n, max_n)
        if occurrence not in OCCURRENCES:
            raise ValueError(
                f"occurrence must be one of {', '.join(OCCURRENCES)}, not {occurrence!r}"
            )
        self.occurrence = occurrence
        self.default_k = whole_number("num_speculative_tokens", num_speculative_tokens, least=0)

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """The tokens behind the chosen place as a chain, tokens (B, k), one-hot (no probs)."""
        tokens, lengths = context.tokens, context.lengths
        if k == 0 or tokens.shape[1] <= self.min_n:  # no room for the tail and an earlier place
            return Draft(tokens.new_zeros(tokens.shape[0], k), torch.zeros_like(lengths))
        place = self._choose(tokens, self._match_lengths(tokens, lengths))  # (B, 1)
        behind = place + torch.arange(1, k + 1, device=tokens.device)  # (B, k)
        exists = (place >= 0) & (behind < lengths[:, None])  # (B, k)
        drafted = tokens.gather(1, behind.clamp(max=tokens.shape[1] - 1))  # (B, k)
        return Draft(drafted * exists, exists.sum(1))

    def _match_lengths(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """How many tokens up to each position equal the row's last ones: (B, L), 0..max_n.

        Positions from the row's last token on, pads among them, get 0.
        """
        width = tokens.shape[1]
        last = lengths[:, None] - 1  # (B, 1)
        columns = torch.arange(width, device=tokens.device)
        running = columns < last  # (B, L); column j here is position j + back
        matched = torch.zeros_like(tokens)  # (B, L)
        for back in range(min(self.max_n, width - 1)):
            wanted = tokens.gather(1, (last - back).clamp(min=0))  # (B, 1)
            running = running[:, min(back, 1) :] & (tokens[:, : width - back] == wanted)
            matched[:, back:] += running
        return matched

    def _choose(self, tokens: Tensor, matched: Tensor) -> Tensor:
        """The end position of the place to copy from, (B, 1); -1 where there is none."""
        width = tokens.shape[1]
        rank = matched  # (B, L)
        if self.occurrence == "most_frequent":
            rank = self._frequency(tokens, matched)
        order = torch.arange(width, device=tokens.device)  # breaks every tie
        if self.occurrence == "first":
            order = width - 1 - order
        best = (rank * width + order).amax(1, keepdim=True) % width  # (B, 1)
        place = width - 1 - best if self.occurrence == "first" else best
        found = matched.amax(1, keepdim=True) >= self.min_n
        return torch.where(found, place, -1)

    @staticmethod
    def _frequency(tokens: Tensor, matched: Tensor) -> Tensor:
        """How many of the longest places share this one's next token, (B, L); 0 for no place."""
        longest = (matched == matched.amax(1, keepdim=True)) & (matched > 0)
        following = torch.where(longest, tokens.roll(-1, dims=1), -1)  # (B, L)
        ordered = following.sort(dim=1).values
        until = torch.searchsorted(ordered, following, right=True)
        return (until - torch.searchsorted(ordered, following)) * longest


def _bounds(min_n: int | None, max_n: int | None) -> tuple[int, int]:
    """Both bounds; the upper default moves as far as the lower bound demands."""
    min_n = whole_number("min_n", MIN_N if min_n is None else min_n, least=1)
    max_n = whole_number("max_n", max(MAX_N, min_n) if max_n is None else max_n, least=1)
    if min_n > max_n:
        raise ValueError(f"min_n must not be above max_n, but {min_n} is above {max_n}")
    return min_n, max_n
