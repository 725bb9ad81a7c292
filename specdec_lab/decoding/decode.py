"""The one loop: propose, score, verify, keep. Plain decoding is this loop with an empty draft.

    prompt -> prefill -> observe -> [ propose -> admit -> score -> verify -> commit -> keep ->
    observe ] until done

Rows of a batch are independent: each has its own length, budget and end. Everything between two
host reads is tensor operations (``Loop.advance`` runs with all tensors on device ``meta``); the one
read per step decides whether to go on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lab.decoding.admit import Admitted, admit
from specdec_lab.decoding.randomness import CounterRandomness, Randomness, row_seeds
from specdec_lab.decoding.records import Context, Draft, RowStep, Scores, Step, Verdict
from specdec_lab.decoding.request import Request, StopRule
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.trace import Trace
from specdec_lab.decoding.verify import Rule, choose_rule

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

_REASONS = (None, "eos", "length")
_GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Generation:
    """What ``generate`` returns: per prompt the new token ids and why they ended, and the trace of
    all steps.
    """

    tokens: list[list[int]]
    finish_reasons: list[str]
    trace: Trace


def generate(
    target: Target,
    prompts: Sequence[Sequence[int]],
    proposer: Any = None,
    *,
    k: int | None = None,
    sampling: Sampling = _GREEDY,
    verify: str | Rule = "auto",
    max_new_tokens: int = 128,
    stop: str | Sequence[str] | StopRule | None = None,
    seed: int | Sequence[int | None] | None = None,
) -> Generation:
    """Continue every prompt (a list of token ids) and return the new tokens with their trace.

    * ``proposer`` is any object with ``propose(context, k, sampling, randomness) -> Draft``;
      ``None`` decodes plainly.
    * ``k`` drafted tokens per step (default: the proposer's own), 0 decodes plainly; an explicit
      ``k`` wins.
    * ``verify`` is ``auto`` (``match`` without a draft law, ``reject`` with one), ``match``,
      ``reject`` or ``block``, or a rule of
      your own (see ``verify.Rule``).
    * ``stop``: strings that end a row (kept in the output), or a rule ``stop(ids, new) -> number of
      ids to keep | None``.
    * ``seed``: one integer for every row, or one per row; ``None`` takes fresh entropy. A row
      equals its prompt alone.

    Whatever the proposer, the output law is that of plain decoding; greedy strings are equal.
    Raises ValueError with one sentence for arguments out of range, before any forward pass.
    """
    how = {"k": k, "sampling": sampling, "verify": verify, "max_new_tokens": max_new_tokens}
    steps = stream(target, prompts, proposer, **how, stop=stop, seed=seed)
    return collect(len(prompts), steps)


def stream(
    target: Target,
    prompts: Sequence[Sequence[int]],
    proposer: Any = None,
    *,
    k: int | None = None,
    sampling: Sampling = _GREEDY,
    verify: str | Rule = "auto",
    max_new_tokens: int = 128,
    stop: str | Sequence[str] | StopRule | None = None,
    seed: int | Sequence[int | None] | None = None,
) -> Iterator[Step]:
    """As ``generate``, but yields each ``Step`` as soon as it is known; the reader may leave at any
    time.

    Arguments are checked here, not at the first step. Several streams of one target may interleave.
    """
    request = Request.checked(target, prompts, proposer, k, sampling, verify, max_new_tokens, stop)
    randomness = CounterRandomness(row_seeds(seed, len(prompts)), target.device)
    return run(target, request, randomness)


def collect(num_rows: int, steps: Iterator[Step]) -> Generation:
    """Join streamed steps into one ``Generation``."""
    tokens: list[list[int]] = [[] for _ in range(num_rows)]
    reasons: list[str | None] = [None] * num_rows
    trace = Trace()
    for step in steps:
        trace.add(step)
        reasons = step.finish_reasons
        for written, row in zip(tokens, step.rows, strict=True):
            written.extend(row.tokens if row else [])
    return Generation(tokens, reasons, trace)


def run(target: Target, request: Request, randomness: Randomness) -> Iterator[Step]:
    """The steps of a checked request under any source of randomness (the enumerating one
    included).
    """
    with torch.inference_mode():
        clock = _Clock()
        loop = Loop(target, request, randomness)
        clock.lap("prefill")
        host = _Host(request)
    while not host.all_finished:
        with torch.inference_mode():
            clock.resume()
            admitted = loop.propose()
            clock.lap("propose")
            scores = loop.score(admitted.draft)
            clock.lap("score")
            report = loop.advance(admitted, scores)
            read = report.tolist()
            clock.lap("verify")
            step = host.digest(read, admitted.draft, clock)
            loop.settle(host)
        yield step


class Loop:
    """The device side of a running request: tokens, lengths and cache of every row."""

    def __init__(self, target: Target, request: Request, randomness: Randomness) -> None:
        self.target, self.request, self.randomness = target, request, randomness
        tokens, lengths, limits = request.tensors(target.device)
        spill = torch.zeros_like(
            tokens[:, :1]
        )  # one column past the end takes what is not committed
        self._buffer = torch.cat([tokens, spill], 1)  # (B, L+1)
        self.context = Context(tokens, lengths, lengths)
        self._set_tokens(lengths)
        self._prompt_lengths = lengths
        self.limits = limits  # (B,) length at which a row must end
        self.done = torch.zeros_like(lengths, dtype=torch.bool)  # (B,)
        self._eos = torch.tensor(target.eos_ids, dtype=torch.long, device=target.device)
        self._start()

    def _start(self) -> None:
        request, proposer = self.request, self.request.proposer
        capacity = self._buffer.shape[1] - 1 + request.k
        self.cache = self.target.start(len(request.prompts), capacity)
        if hasattr(proposer, "start"):
            proposer.start(len(request.prompts), capacity)
        if hasattr(proposer, "share"):
            proposer.share(self.cache)
        longest = max(map(len, request.prompts)) - 1
        prompt = self._buffer[:, :longest]
        counts = self.context.lengths - 1
        hidden = self.target.prefill(self.cache, prompt, counts, self._hidden_layers)
        self._observe(prompt, counts, hidden)

    @property
    def _hidden_layers(self) -> tuple[int, ...]:
        return tuple(getattr(self.request.proposer, "hidden_layers", ()))

    def _set_tokens(self, lengths: Tensor) -> None:
        self.context = Context(self._buffer[:, :-1], lengths, self.context.prompt_lengths)

    def propose(self) -> Admitted:
        """What the proposer drafts, checked and cut to what may be committed."""
        request = self.request
        if request.k == 0:
            draft = Draft.empty(self.done.shape[0], self.done.device)
        else:
            draft = request.proposer.propose(
                self.context, request.k, request.sampling, self.randomness
            )
        room = (self.limits - self.context.lengths - 1).masked_fill(self.done, 0)
        return admit(draft, request.k, room, self.target.vocab_size, self._eos)

    def score(self, draft: Draft) -> Scores:
        """One target forward over the pending token and the draft."""
        return self.target.score(self.cache, self.context.pending, draft, self._hidden_layers)

    def advance(self, admitted: Admitted, scores: Scores) -> Tensor:
        """Verify, commit and keep; returns everything the host wants to know, (B, 2N + 7) int64,
        for a tree (B, 4N + 7).
        """
        draft = admitted.draft
        rule = choose_rule(self.request.verify, draft)
        verdict = rule(self.context, draft, scores, self.request.sampling, self.randomness)
        path, hidden, tree = None, scores.hidden, []
        tokens = draft.tokens  # (B, N), from here on those of the accepted path
        if draft.parents is not None:
            path, tree = verdict.path, [draft.parents, verdict.path]
            tokens = tokens.gather(1, path)
            hidden = {layer: _along(path, states) for layer, states in hidden.items()}
        emitted, num_emitted, reason = self._cut(tokens, verdict)
        kept_nodes = torch.cat([self.context.pending[:, None], tokens], 1)  # (B, N+1)
        self._commit(emitted, num_emitted)
        self.target.keep(self.cache, path, num_emitted)
        self._observe(kept_nodes, num_emitted, hidden)
        self.done = self.done | (reason > 0)
        sound = scores.logits.amax(-1).isfinite().all(-1).long()  # (B,)
        columns = [num_emitted, verdict.num_accepted, reason, draft.count, sound, admitted.fault]
        return torch.cat([torch.stack(columns, 1), draft.tokens, emitted, *tree], 1)

    def _cut(self, accepted: Tensor, verdict: Verdict) -> tuple[Tensor, Tensor, Tensor]:
        """Committed tokens (B, N+1), how many (B,), and the finish reason (B,), as an index into
        ``_REASONS``.

        The one place that ends a row: at the first end token wherever it stands in the block, or at
        its limit.
        """
        last = verdict.next_token[:, None]
        emitted = torch.cat([accepted, last], 1)  # (B, N+1)
        emitted = emitted.scatter(1, verdict.num_accepted[:, None], last)
        place = torch.arange(emitted.shape[1], device=emitted.device)
        room = (self.limits - self.context.lengths).masked_fill(self.done, 0)
        num_emitted = torch.minimum(verdict.num_accepted + 1, room)
        is_end = (emitted[..., None] == self._eos).any(-1) & (place < num_emitted[:, None])
        first_end = torch.where(is_end, place, emitted.shape[1]).amin(1)
        num_emitted = torch.minimum(num_emitted, first_end + 1)
        at_limit = (self.context.lengths + num_emitted >= self.limits).long() * 2
        reason = torch.where(is_end.any(1), 1, at_limit).masked_fill(self.done, 0)
        return emitted, num_emitted, reason

    def _commit(self, emitted: Tensor, num_emitted: Tensor) -> None:
        place = torch.arange(emitted.shape[1], device=emitted.device)
        slots = self.context.lengths[:, None] + place  # (B, N+1)
        spill = self._buffer.shape[1] - 1
        slots = slots.masked_fill(place >= num_emitted[:, None], spill).clamp(max=spill)
        self._buffer = self._buffer.scatter(1, slots, emitted)
        self._set_tokens(self.context.lengths + num_emitted)

    def _observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        if hasattr(self.request.proposer, "observe"):
            self.request.proposer.observe(tokens, counts, hidden)

    def settle(self, host: _Host) -> None:
        """Bring back what only the host knows: rows ended by a stop rule, and the longest row."""
        if any(reason == "stop" for reason in host.finish_reasons):
            stopped = [reason is not None for reason in host.finish_reasons]
            self.done = self.done | torch.tensor(stopped, device=self.done.device)
        self.cache.settle(host.longest)


def _along(path: Tensor, states: Tensor) -> Tensor:
    """The states (B, N+1, H) of the pending token and of the nodes on ``path`` (B, N) in order."""
    entries = torch.nn.functional.pad(path + 1, (1, 0))  # (B, N+1)
    return states.gather(1, entries[..., None].expand_as(states))


class _Clock:
    """Engine time by part; the time while the reader holds a step is not counted."""

    def __init__(self) -> None:
        self.total = 0.0
        self._parts: dict[str, float] = {}
        self.resume()

    def resume(self) -> None:
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        now = perf_counter()
        self._parts[part] = self._parts.get(part, 0.0) + now - self._last
        self.total += now - self._last
        self._last = now

    def parts(self) -> dict[str, float]:
        taken, self._parts = self._parts, {}
        return taken


class _Host:
    """The host side: outputs so far, stop rules, and the records that readers see."""

    def __init__(self, request: Request) -> None:
        self._stop = request.stop
        self._lengths = [len(prompt) for prompt in request.prompts]
        self._outputs: list[list[int]] = [[] for _ in request.prompts]
        self.finish_reasons: list[str | None] = [None] * len(request.prompts)
        self._warned = False

    @property
    def all_finished(self) -> bool:
        return all(self.finish_reasons)

    @property
    def longest(self) -> int:
        return max(map(int.__add__, self._lengths, map(len, self._outputs)))

    def digest(self, read: list[list[int]], draft: Draft, clock: _Clock) -> Step:
        """Turn one read of the device into a ``Step``; raises ValueError for scores that are no
        numbers.
        """
        running = [reason is None for reason in self.finish_reasons]
        rows = [
            self._row(b, row, draft) if on else None
            for b, (row, on) in enumerate(zip(read, running, strict=True))
        ]
        clock.lap("other")
        rows = [row and replace(row, at=clock.total) for row in rows]
        return Step(rows, list(self.finish_reasons), clock.parts())

    def _row(self, b: int, row: list[int], draft: Draft) -> RowStep:
        """One row of the report of ``Loop.advance`` as a record, its time still open."""
        num_emitted, num_accepted, reason, count, sound, fault = row[:6]
        if not sound:
            raise ValueError(
                f"The target's logits for prompt {b} are not finite after {len(self._outputs[b])} "
                "tokens; check its weights and dtype."
            )
        self._complain(fault)
        num_nodes = draft.tokens.shape[1]
        drafted, rest = row[6 : 6 + count], row[6 + num_nodes :]
        tokens, tree = rest[:num_emitted], rest[num_nodes + 1 :]
        self.finish_reasons[b] = _REASONS[reason]
        tokens = self._stopped(b, tokens)
        parents = path = None
        if draft.parents is not None:
            parents, path = tree[:count], tree[num_nodes:][:num_accepted]
        return RowStep(drafted, tokens, num_accepted, 0.0, parents, path).before_cut()

    def _complain(self, fault: int) -> None:
        if fault == Admitted.FOREIGN:
            raise ValueError(
                "The proposer drafted an id outside the target's vocabulary; map it first."
            )
        if fault == Admitted.NO_TREE:
            raise ValueError(
                "The proposer's parents are no tree: each must be -1 (the pending token) or the "
                "index of an earlier node."
            )
        if fault == Admitted.NO_LAW and not self._warned:
            self._warned = True
            warnings.warn(
                "The proposer's probs are no law (not finite, negative, or not summing to 1); "
                "those drafts are dropped and decoding goes on plainly.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _stopped(self, b: int, tokens: list[int]) -> list[int]:
        output = self._outputs[b]
        before = len(output)
        output.extend(tokens)
        kept = self._stop(output, len(tokens)) if self._stop else None
        if kept is not None:
            del output[kept:]
            self.finish_reasons[b] = "stop"
        return output[before:]
