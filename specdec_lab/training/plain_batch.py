"""Plain decoding of very many prompts: rows of one batch, each filled anew as its answer ends.

What ``decode.stream`` does for a request, made for throughput: prompts are read in groups of
similar length, the temperature is a row's own, and the products run in bfloat16 where that is
fast. A row's chance is keyed by its own seed and position, so company changes rounding and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.randomness import CounterRandomness, Lane
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import GREEDY_BELOW
from specdec_lab.decoding.target import Target
from specdec_lab.training.losses import TopLaw
from specdec_lab.training.states import top_laws

READ_TOGETHER = 8  # prompts that one prefill reads
SORTED_TOGETHER = 128  # prompts that are put in order of length before they are read
COLUMNS = 256  # width of a piece of the vocabulary in the two-stage draw


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt to answer; ``tag`` is whatever the caller wants to find it by."""

    prompt: Sequence[int]
    temperature: float
    seed: int
    tag: object = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the target had in mind: the states (T - 1, H) of some layers at all tokens of prompt and
    answer but the last, and the laws (A, K) that the A tokens of the answer come from.
    """

    hidden: dict[int, Tensor]
    laws: TopLaw


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target wrote, the end token included; ``finish`` is ``eos`` or ``length``.

    ``seen`` is there where it was asked for.
    """

    job: Job
    tokens: list[int]
    finish: str
    seen: Seen | None = None


@dataclass
class _Row:
    job: Job
    length: int  # entries in the cache
    hidden: dict[int, list[Tensor]]  # by layer, pieces (n, H)
    tokens: list[int] = field(default_factory=list)
    laws: list[TopLaw] = field(default_factory=list)

    def seen(self) -> Seen:
        hidden = {i: torch.cat(pieces) for i, pieces in self.hidden.items()}
        ids, probs = (torch.stack([getattr(x, name) for x in self.laws]) for name in _LAW)
        return Seen(hidden, TopLaw(ids, probs))


_LAW = ("ids", "probs")


@torch.no_grad()
def answer_all(
    target: Target,
    jobs: Iterable[Job],
    num_rows: int = 64,
    max_new_tokens: int = 192,
    watched: Sequence[int] | None = None,
) -> Iterator[Answer]:
    """The answers to all jobs, in the order in which they end; with what was `Seen` at the layers
    ``watched`` unless that is None.

    Jobs are taken as rows come free, so ``jobs`` may be endless. Raises ``ValueError`` for a prompt
    that leaves no room for an answer.
    """
    batch = _Batch(target, num_rows, max_new_tokens, watched)
    queue = _by_length(jobs)
    waiting = True
    while True:
        if waiting and batch.should_fill():
            waiting = batch.fill(list(islice(queue, batch.num_to_fill())))
        if not any(batch.rows):
            return
        yield from batch.step()


def _by_length(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs, each window of them sorted by length, up and down in turn.

    Rows that decode together are then of similar length, and attention reads few keys in vain.
    """
    source, downwards = iter(jobs), False
    while window := list(islice(source, SORTED_TOGETHER)):
        yield from sorted(window, key=lambda job: len(job.prompt), reverse=downwards)
        downwards = not downwards


class _Batch:
    """Rows that decode together; an idle row has length 0 and is not kept."""

    def __init__(
        self, target: Target, num_rows: int, max_new_tokens: int, watched: Sequence[int] | None
    ) -> None:
        self.target, self.max_new_tokens = target, max_new_tokens
        self.watches, self.layers = watched is not None, tuple(watched or ())
        self.rows: list[_Row | None] = [None] * num_rows
        self.capacity = min(target.max_context, 512)
        self.cache = target.start(num_rows, self.capacity).for_drafts()
        self.pending = torch.zeros(num_rows, dtype=torch.long)  # (B,)
        self.temperatures = torch.zeros(num_rows)  # (B,)
        self.randomness = CounterRandomness([0] * num_rows)
        self.no_draft = Draft(
            torch.zeros(num_rows, 0, dtype=torch.long), torch.zeros(num_rows, dtype=torch.long)
        )

    def _idle(self) -> list[int]:
        return [b for b, row in enumerate(self.rows) if row is None]

    def num_to_fill(self) -> int:
        """How many prompts to read next."""
        return min(READ_TOGETHER, len(self._idle()))

    def should_fill(self) -> bool:
        """Whether enough rows are idle for a group of prompts."""
        return len(self._idle()) >= min(READ_TOGETHER, len(self.rows))

    def fill(self, jobs: list[Job]) -> bool:
        """Read the prompts of some jobs into idle rows; False when there were none."""
        if not jobs:
            return False
        places = self._idle()[: len(jobs)]
        small, hidden = self._read([job.prompt[:-1] for job in jobs])
        for i, (b, job) in enumerate(zip(places, jobs, strict=True)):
            length = len(job.prompt) - 1
            _copy_row(small, i, self.cache, b, length)
            states = {layer: [found[i, :length].half()] for layer, found in hidden.items()}
            self.rows[b] = _Row(job, length, states)
            self.pending[b] = job.prompt[-1]
            self.temperatures[b] = job.temperature
        self.randomness = CounterRandomness([row.job.seed if row else 0 for row in self.rows])
        self._tell_lengths()
        return True

    def _read(self, prompts: list[Sequence[int]]) -> tuple[KVCache, dict[int, Tensor]]:
        width = max(map(len, prompts))
        if width + 1 + self.max_new_tokens > self.capacity:
            raise ValueError(
                f"A prompt of {width + 1} tokens and {self.max_new_tokens} new ones do not fit "
                f"{self.capacity} positions: leave longer prompts out."
            )
        tokens = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts])  # (G, width)
        small = self.target.start(len(prompts), width).for_drafts()
        counts = torch.tensor([len(p) for p in prompts])
        return small, self.target.prefill(small, tokens, counts, self.layers)

    def _tell_lengths(self) -> None:
        lengths = [row.length if row else 0 for row in self.rows]
        self.cache.lengths = torch.tensor(lengths)
        self.cache.settle(max(lengths))

    def step(self) -> Iterator[Answer]:
        """One token for every row; the answers that end with it."""
        scores = self.target.score(self.cache, self.pending, self.no_draft, self.layers)
        logits = scores.logits[:, 0]  # (B, V)
        if self.watches:
            self._note(logits, scores.hidden)
        uniform = self.randomness.uniform(self.cache.lengths + 1, Lane.TARGET)
        self.pending = choose(logits, self.temperatures, uniform)
        for b, (row, token) in enumerate(zip(self.rows, self.pending.tolist(), strict=True)):
            if row is not None:
                row.tokens.append(token)
                row.length += 1
                finish = self._finish(row)
                if finish:
                    self.rows[b] = None
                    yield Answer(row.job, row.tokens, finish, row.seen() if self.watches else None)
        self._tell_lengths()

    def _note(self, logits: Tensor, hidden: Mapping[int, Tensor]) -> None:
        """Write down the laws (B, V) and the states (B, 1, H) of a step."""
        laws = top_laws(logits)
        kept = {i: states.half() for i, states in hidden.items()}
        for b, row in enumerate(self.rows):
            if row is not None:
                row.laws.append(laws[b])
                for i, states in kept.items():
                    row.hidden[i].append(states[b])

    def _finish(self, row: _Row) -> str | None:
        if row.tokens[-1] in self.target.eos_ids:
            return "eos"
        return "length" if len(row.tokens) == self.max_new_tokens else None


def _copy_row(source: KVCache, i: int, goal: KVCache, b: int, length: int) -> None:
    """Entries 0..length of row ``i`` of one cache into row ``b`` of another."""
    start, place = i * source.capacity, b * goal.capacity
    goal.entries[:, place : place + length] = source.entries[:, start : start + length]


def choose(logits: Tensor, temperatures: Tensor, uniform: Tensor) -> Tensor:
    """One token (B,) a row of ``logits`` (B, V), each at its own temperature (B,), by the inverse
    of the cumulative law at ``uniform`` (B,); greedy where the temperature is 0.

    The same token as ``inverse_cdf`` gives but for rounding: the vocabulary is summed in pieces,
    and only the piece that holds the token is looked at closely, in float64.
    """
    logits = logits.float()
    best = logits.argmax(-1)  # (B,)
    greedy = temperatures < GREEDY_BELOW
    scale = temperatures.where(~greedy, 1)[:, None]
    spare = -logits.shape[1] % COLUMNS
    mass = ((logits - logits.gather(1, best[:, None])) / scale).exp()
    pieces = F.pad(mass, (0, spare)).unflatten(1, (-1, COLUMNS))  # (B, P, C)
    upto = pieces.sum(-1).double().cumsum(-1)  # (B, P)
    goal = uniform[:, None] * upto[:, -1:]
    piece = torch.searchsorted(upto, goal, right=True).clamp(max=upto.shape[1] - 1)  # (B, 1)
    before = F.pad(upto, (1, 0)).gather(1, piece)
    inside = pieces.gather(1, piece[:, :, None].expand(-1, -1, COLUMNS))[:, 0].double().cumsum(-1)
    column = torch.searchsorted(inside, goal - before, right=True)
    last = (inside < inside[:, -1:]).sum(-1, keepdim=True)  # where the piece's mass ends
    drawn = (piece * COLUMNS + torch.minimum(column, last))[:, 0]
    return best.where(greedy, drawn)
