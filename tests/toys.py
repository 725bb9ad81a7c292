"""A toy target whose law is a table, and drafts of every shape: small enough to enumerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from specdec_lab.decoding.decode import collect, run
from specdec_lab.decoding.randomness import (
    EnumeratingRandomness,
    Lane,
    Randomness,
    enumerate_laws,
)
from specdec_lab.decoding.records import Context, Draft, Scores, Step
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Architecture, Transformer
from specdec_lab.decoding.tree import ancestors, chain_parents, prune
from specdec_lab.decoding.verify import Rule

Law = Callable[[tuple[int, ...]], list[float]]
PLAIN = Sampling(temperature=1.0)
PROMPT = (0, 1)
SHAPES = ("dense", "sparse", "disjoint", "equal", "one_hot", "zeros")


def paths(
    root: tuple[int, ...], tokens: Sequence[int], parents: Sequence[int]
) -> list[tuple[int, ...]]:
    """The text down to the root and to every node of a tree."""
    texts = [root]
    for token, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent + 1], token))
    return texts


class ToyCache:
    """Remembers the tokens it was fed, so that a wrong `keep` shows up in the law."""

    def __init__(self, batch_size: int, max_length: int) -> None:
        self.tokens = torch.full((batch_size, max_length), -1)
        self.lengths = torch.zeros(batch_size, dtype=torch.long)

    def settle(self, max_length: int) -> None:
        assert max_length <= self.tokens.shape[1] + 1


class ToyTarget:
    """A target whose next-token law is `law(tokens so far)`; its context comes from its cache
    alone.
    """

    tokenizer = None
    device = torch.device("cpu")
    dtype = torch.float64

    def __init__(
        self, law: Law, vocab_size: int, eos_ids: Sequence[int] = (), max_context: int = 64
    ) -> None:
        self.law, self.vocab_size, self.eos_ids = law, vocab_size, tuple(eos_ids)
        self.max_context = max_context
        self.num_forwards = 0
        self._known: dict[tuple[int, ...], list[float]] = {}

    def start(self, batch_size: int, max_length: int) -> ToyCache:
        return ToyCache(batch_size, max_length)

    def prefill(
        self, cache: ToyCache, tokens: Tensor, counts: Tensor, hidden_layers: tuple = ()
    ) -> dict:
        cache.tokens[:, : tokens.shape[1]] = tokens
        cache.lengths = counts.clone()
        return {}

    def score(
        self, cache: ToyCache, pending: Tensor, draft: Draft, hidden_layers: tuple = ()
    ) -> Scores:
        self.num_forwards += 1
        nodes = torch.cat([pending[:, None], draft.tokens], 1)  # (B, N+1)
        trees = chain_parents(*draft.tokens.shape) if draft.parents is None else draft.parents
        known = zip(cache.tokens.tolist(), cache.lengths.tolist(), strict=True)
        rows = []
        for (before, length), row, parents in zip(
            known, nodes.tolist(), trees.tolist(), strict=True
        ):
            texts = paths((*before[:length], row[0]), row[1:], parents)
            rows.append([self._logits(text) for text in texts])
        slots = cache.lengths[:, None] + torch.arange(nodes.shape[1])
        cache.tokens.scatter_(1, slots, nodes)
        return Scores(torch.tensor(rows, dtype=torch.float64))

    def keep(self, cache: ToyCache, path: Tensor | None, counts: Tensor) -> None:
        if path is not None:
            depth = torch.arange(path.shape[1])
            kept = path.where(depth < counts[:, None] - 1, depth)
            first = cache.lengths[:, None] + 1
            cache.tokens.scatter_(1, first + depth, cache.tokens.gather(1, first + kept))
        cache.lengths = cache.lengths + counts

    def _logits(self, context: tuple[int, ...]) -> list[float]:
        if context not in self._known:
            law = torch.tensor(self.law(context), dtype=torch.float64)
            self._known[context] = law.log().tolist()
        return self._known[context]


class ToyDrafter:
    """Draws a chain from `law`, as a draft model would; or takes its argmax, with or without the
    law.
    """

    def __init__(self, law: Law, argmax: bool = False, tell_law: bool = True) -> None:
        self.law, self.argmax, self.tell_law = law, argmax, tell_law

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        pairs = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
        rows = [tokens[:length] for tokens, length in pairs]
        probs = []
        for place in range(k):
            laws = torch.tensor([self.law(tuple(row)) for row in rows], dtype=torch.float64)
            drawn = laws.argmax(1)
            if not self.argmax:
                drawn = randomness.draw(laws, context.lengths, Lane.DRAFT, place)
            rows = [[*row, token] for row, token in zip(rows, drawn.tolist(), strict=True)]
            probs.append(laws)
        tokens = torch.tensor([row[len(row) - k :] for row in rows])
        return Draft(
            tokens,
            torch.full((len(rows),), k),
            probs=torch.stack(probs, 1) if self.tell_law else None,
        )


class ToyTree:
    """Drafts the tree whose parents are `shapes[s]`, a shape for every residue of the context's
    length: the children of a node drawn from `law`, without replacement or with it, or its most
    probable tokens. Nothing is drafted where a text would reach `limit`.
    """

    def __init__(
        self,
        law: Law,
        shapes: Sequence[Sequence[int]],
        how: str = "apart",
        tell_law: bool = True,
        limit: int = 99,
    ) -> None:
        assert how in ("apart", "independent", "top")
        self.law, self.shapes, self.how, self.tell_law = law, shapes, how, tell_law
        self.limit = limit

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        pairs = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
        texts = [[tuple(tokens[:length])] for tokens, length in pairs]
        shapes = [self.shapes[len(row[0]) % len(self.shapes)][:k] for row in texts]
        used: list[dict[int, list[int]]] = [{} for _ in texts]  # the siblings drafted so far
        columns = []
        for node in range(k):
            parents = [shape[node] if node < len(shape) else -1 for shape in shapes]
            told = zip(texts, used, parents, strict=True)
            laws = [self._left(row[p + 1], taken.get(p, [])) for row, taken, p in told]
            room = [len(row[p + 1]) + 1 < self.limit for row, p in zip(texts, parents, strict=True)]
            live = [
                any(law) and node < len(shape) and wanted
                for law, shape, wanted in zip(laws, shapes, room, strict=True)
            ]
            laws = torch.tensor(laws, dtype=torch.float64)
            drawn = laws.argmax(1)
            if self.how != "top":
                certain = torch.nn.functional.one_hot(drawn, laws.shape[1]).double()
                drawable = torch.where(torch.tensor(live)[:, None], laws, certain)
                drawn = randomness.draw(drawable, context.lengths, Lane.DRAFT, node)
            for row, taken, p, token in zip(texts, used, parents, drawn.tolist(), strict=True):
                row.append((*row[p + 1], token))
                taken.setdefault(p, []).append(token)
            columns.append((drawn, torch.tensor(parents), laws, torch.tensor(live)))
        tokens, parents, laws, live = (torch.stack(x, 1) for x in zip(*columns, strict=True))
        path = ancestors(parents)[:, 1:, 1:]
        live = ~(path & ~live[:, None]).any(-1)
        probs = laws if self.tell_law else None
        return prune(Draft(tokens, live.sum(1), parents, probs), live)

    def _left(self, text: tuple[int, ...], taken: list[int]) -> list[float]:
        law = self.law(text)
        if self.how == "independent":
            return law
        rest = [0.0 if token in taken else p for token, p in enumerate(law)]
        return [p / sum(rest) for p in rest] if sum(rest) else rest


class Scripted:
    """Proposes what a function of the tokens so far says, one-hot; remembers every k it was
    given.
    """

    def __init__(self, script: Callable[[list[int]], list[int]]) -> None:
        self.script, self.asked = script, []

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        self.asked.append(k)
        seen = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
        drafts = [self.script(tokens[:length])[:k] for tokens, length in seen]
        width = max(map(len, drafts), default=0)
        tokens = torch.tensor([d + [0] * (width - len(d)) for d in drafts]).view(len(drafts), width)
        return Draft(tokens.long(), torch.tensor([len(d) for d in drafts]))


def random_law(seed: int, vocab_size: int, zeros: int = 0) -> Law:
    """A law drawn at random for every context; `zeros` entries of each have no mass."""

    @cache
    def law(context: tuple[int, ...]) -> list[float]:
        generator = torch.Generator().manual_seed(hash((seed, *context)) % 2**62)
        weights = torch.rand(vocab_size, generator=generator, dtype=torch.float64) ** 2 + 0.02
        weights[torch.randperm(vocab_size, generator=generator)[:zeros]] = 0
        return (weights / weights.sum()).tolist()

    return law


def pair_of_laws(shape: str, seed: int, vocab_size: int) -> tuple[Law, Law]:
    """Target and draft law of one of the SHAPES."""
    target, draft = random_law(seed, vocab_size), random_law(seed + 1, vocab_size)
    few = random_law(seed, vocab_size, zeros=1)
    if shape == "dense":
        return target, draft
    if shape == "sparse":
        return few, random_law(seed + 1, vocab_size, zeros=1)
    if shape == "disjoint":
        return (lambda c: _half(target(c), 0)), (lambda c: _half(draft(c), 1))
    if shape == "equal":
        return target, target
    if shape == "one_hot":
        return target, random_law(seed + 1, vocab_size, zeros=vocab_size - 1)
    return few, draft  # "zeros": the draft proposes what the target never says


def _half(law: list[float], which: int) -> list[float]:
    kept = [p if (i % 2 == which) else 0.0 for i, p in enumerate(law)]
    return [p / sum(kept) for p in kept]


def sequence_law(
    law: Law, prompt: tuple[int, ...], max_new: int, eos_ids: Sequence[int] = ()
) -> dict[tuple[int, ...], float]:
    """The target's own law over outputs of at most `max_new` tokens, cut after an end token."""
    finished: dict[tuple[int, ...], float] = {}
    growing = {(): 1.0}
    for _ in range(max_new):
        grown = {
            (*output, token): weight * p
            for output, weight in growing.items()
            for token, p in enumerate(law((*prompt, *output)))
            if p > 0
        }
        finished |= {out: w for out, w in grown.items() if out[-1] in eos_ids}
        growing = {out: w for out, w in grown.items() if out[-1] not in eos_ids}
    return finished | growing


def whole_law(
    target: Any,
    drafter: Any,
    k: int,
    rule: str | Rule,
    max_new: int,
    sampling: Sampling = PLAIN,
    width: int = 512,
) -> dict[tuple[int, ...], float]:
    """Law of what `generate` writes behind PROMPT, all of its steps under one source of chance;
    `width` branches run as the rows of one batch.
    """

    def write(randomness: EnumeratingRandomness, which: list[int]) -> list[tuple[int, ...]]:
        prompts = [PROMPT] * len(which)
        asked = Request.checked(target, prompts, drafter, k, sampling, rule, max_new, None)
        written = collect(len(which), _closing(run(target, asked, randomness), randomness))
        return [tuple(tokens) for tokens in written.tokens]

    return enumerate_laws(write, 1, width)[0]


def _closing(steps: Iterator[Step], randomness: EnumeratingRandomness) -> Iterator[Step]:
    """The same steps; a row that has ended opens no branch while others go on."""
    for step in steps:
        for row, reason in enumerate(step.finish_reasons):
            if reason is not None:
                randomness.close(row)
        yield step


def total_variation(one: dict, other: dict) -> float:
    """Half the sum of absolute differences between two laws."""
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in one.keys() | other.keys()) / 2


def random_target(
    seed: int = 0,
    vocab_size: int = 32,
    dtype: torch.dtype = torch.float64,
    eos_ids: Sequence[int] = (),
    max_context: int = 96,
    device: str = "cpu",
    graphs: bool = False,
) -> Target:
    """A real, tiny decoder with random weights."""
    torch.manual_seed(seed)
    arch = Architecture(
        vocab_size=vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mlp_size=48,
        inv_freq=tuple(10000 ** (-i / 4) for i in range(4)),
    )
    model = Transformer(arch)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4) if parameter.ndim > 1 else None
    model = model.to(device, dtype)
    return Target(model, max_context=max_context, eos_ids=eos_ids, graphs=graphs)
