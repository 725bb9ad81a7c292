"""Target: the model whose law is sampled. It reads prompts, scores drafts and hands out hidden
states.

A target holds nothing but weights and its tokenizer; what it has read lies in an explicit
``KVCache``, so several streams may interleave. No method here reads the device: the whole step runs
with every tensor on device ``meta``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.graphs import Model, StepGraphs, Steps
from specdec_lab.decoding.records import Draft, Scores
from specdec_lab.decoding.text import chat_ids
from specdec_lab.decoding.transformer import Transformer
from specdec_lab.decoding.tree import ancestors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PREFILL_BLOCK = 128  # tokens of a prompt that one forward reads


class Target:
    """A decoder ready for inference, with the numbers and the tokenizer that the loop needs.

    ``max_context`` is the number of positions it may use; ``eos_ids`` may be empty; ``tokenizer``
    is None for a random model. With ``graphs`` each form of a step is captured when first met and
    replayed as one CUDA graph (see ``graphs.py``); elsewhere than on CUDA that changes nothing.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        max_context: int,
        eos_ids: Sequence[int] = (),
        tokenizer: PreTrainedTokenizerBase | None = None,
        name: str = "random",
        graphs: bool = False,
    ) -> None:
        self.model = self._made_fast(model).eval()
        self.vocab_size = model.arch.vocab_size
        self.hidden_size = model.arch.hidden_size
        self.num_layers = model.arch.num_layers
        self.max_context = max_context
        self.eos_ids = tuple(eos_ids)
        self.tokenizer = tokenizer
        self.name = name
        self.graphs = graphs
        self.steps = self.steps_of(self.model)

    def _made_fast(self, model: Transformer) -> Transformer:
        return model.pack()

    @property
    def device(self) -> torch.device:
        """Where the weights are, and every tensor given and returned."""
        return self.model.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of weights, hidden states and logits."""
        return self.model.embed.weight.dtype

    def with_model(self, model: Transformer, what: str) -> Target:
        """The same target with other products in its ``model``, called "name, what"."""
        return Target(
            model,
            max_context=self.max_context,
            eos_ids=self.eos_ids,
            tokenizer=self.tokenizer,
            name=f"{self.name}, {what}",
            graphs=self.graphs,
        )

    def steps_of(self, model: Model) -> Steps:
        """The steps of a model that works for this one, captured if the target's own are."""
        return StepGraphs(model) if self.graphs else Steps(model)

    def start(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache for ``batch_size`` rows of up to ``max_length`` tokens."""
        return self.steps.new_cache(batch_size, max_length)

    @torch.no_grad()
    def prefill(
        self, cache: KVCache, tokens: Tensor, counts: Tensor, hidden_layers: Sequence[int] = ()
    ) -> dict[int, Tensor]:
        """Read ``tokens[b, :counts[b]]`` (B, P) into slots 0.. of a cache, in blocks of fixed size,
        without the head.

        Returns the states of the layers asked for, each (B, P, H); a row's states at or beyond its
        count mean nothing.
        """
        width = tokens.shape[1]
        real = torch.arange(width, device=tokens.device) < counts[:, None]  # (B, P)
        tokens = tokens.where(real, 0)
        cache.lengths = torch.zeros_like(counts)
        cache.settle(0)
        blocks: dict[int, list[Tensor]] = {i: [self._no_states(len(tokens))] for i in hidden_layers}
        for block in tokens.split(PREFILL_BLOCK, dim=1) if width else ():
            _, hidden = self.model(block, cache, hidden_layers)
            cache.keep(None, torch.full_like(counts, block.shape[1]))
            for i in hidden_layers:
                blocks[i].append(hidden[i])
        cache.lengths = counts.clone()
        return {i: torch.cat(parts, dim=1) for i, parts in blocks.items()}

    def _no_states(self, batch_size: int) -> Tensor:
        return torch.empty(batch_size, 0, self.hidden_size, dtype=self.dtype, device=self.device)

    @torch.no_grad()
    def score(
        self, cache: KVCache, pending: Tensor, draft: Draft, hidden_layers: Sequence[int] = ()
    ) -> Scores:
        """One forward over the pending token (B,) and the N drafted behind it, a chain or a tree;
        lengths are left alone.

        Row ``b`` of the result judges the children of its nodes 0..count[b]; what stands beyond
        means nothing.
        """
        num_drafted = draft.tokens.shape[1]
        real = torch.arange(num_drafted, device=pending.device) < draft.count[:, None]  # (B, N)
        nodes = torch.cat((pending[:, None], draft.tokens.where(real, 0)), dim=1)  # (B, N+1)
        seen = () if draft.parents is None else (ancestors(draft.parents.where(real, -1)),)
        return self.read(cache, nodes, *seen, hidden_layers=hidden_layers)

    def read(
        self, cache: KVCache, nodes: Tensor, *seen: Tensor, hidden_layers: Sequence[int] = ()
    ) -> Scores:
        """One forward over ``nodes`` (B, N): a chain, or nodes of trees that see each other as
        ``seen`` (B, N, M) says (see `tree_layout`). Lengths are left alone.
        """
        layers, num_nodes = tuple(hidden_layers), (seen or (nodes,))[0].shape[-1]
        logits, *hidden = self.steps.run(self._step, cache, num_nodes, nodes, *seen, layers=layers)
        return Scores(logits=logits, hidden=dict(zip(layers, hidden, strict=True)))

    def _step(
        self, cache: KVCache, nodes: Tensor, *seen: Tensor, layers: tuple[int, ...]
    ) -> tuple[Tensor, ...]:
        """Logits (B, N, V), and the states (B, N, H) of each of ``layers``."""
        states, hidden = self.model(nodes, cache, layers, *seen)
        return self.model.head(states), *(hidden[layer] for layer in layers)

    def keep(self, cache: KVCache, path: Tensor | None, counts: Tensor) -> None:
        """Commit ``counts`` (B,) of the nodes just scored, the pending one included; ``path`` is
        None for a chain.
        """
        cache.keep(path, counts)

    def encode_chat(self, text: str, prefix: str = "", system: str | None = None) -> list[int]:
        """Ids of a user's message in the chat template, up to where the answer begins with
        ``prefix``.
        """
        return chat_ids(self._require_tokenizer(), text, prefix, system)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, with the start token if the model was trained with one."""
        return self._require_tokenizer().encode(text)

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Text of ids; ``special`` shows special tokens (such as the end token) too."""
        return self._require_tokenizer().decode(
            list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )

    def _require_tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(f"The model '{self.name}' has no tokenizer: give token ids instead.")
        return self.tokenizer


def probe_rows(
    target: Target, widths: Sequence[int] = (2, 5, 9, 17, 33), context: int = 60, seed: int = 0
) -> dict[str, bool]:
    """Which ways of scoring give, here and now, bitwise the logits of steps of one token.

    Tries ``widths`` nodes in one forward behind ``context`` random tokens, a prefill in blocks, and
    a batch of 16 unequal rows. Where a case does not hold, greedy speculation may differ from plain
    decoding at near-ties (see ``classify_mismatch``).
    """
    generator = torch.Generator().manual_seed(seed)
    length = context + max(widths)
    ids = torch.randint(target.vocab_size, (16, length), generator=generator).to(target.device)
    cache = _read(target, ids[:1, :context], length)
    steps = _score_singly(target, cache, ids[:1, context:])  # (1, max width, V)
    results = {}
    for width in widths:
        cache.roll_back(torch.tensor([context], device=target.device))
        cache.settle(context)
        together = _score_chain(target, cache, ids[:1, context : context + width])
        results[f"{width} nodes"] = torch.equal(together, steps[:, :width])
    last = _score_chain(target, _read(target, ids[:1, :-1], length), ids[:1, -1:])
    results["prefill"] = torch.equal(last, steps[:, -1:])
    results["16 unequal rows"] = _batch_equals_rows(target, ids[:, :65])
    return results


def probe_threads(target: Target, context: int = 60, width: int = 5, seed: int = 0) -> bool:
    """Whether one thread gives, here and now, bitwise the logits that all threads give: of a lone
    node and of ``width`` in one forward, behind a prefill of ``context`` random tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(target.vocab_size, (1, context + width), generator=generator)
    ids = ids.to(target.device)

    def logits() -> Tensor:  # (1, 1 + width, V)
        cache = _read(target, ids[:, :context], context + width)
        nodes = ids[:, context:]
        chains = [_score_chain(target, cache, nodes[:, :n]) for n in (1, width)]
        return torch.cat(chains, dim=1)

    number, together = torch.get_num_threads(), logits()
    torch.set_num_threads(1)
    try:
        return torch.equal(logits(), together)
    finally:
        torch.set_num_threads(number)


def _read(target: Target, tokens: Tensor, max_length: int, counts: Tensor | None = None) -> KVCache:
    """A new cache that has read ``tokens`` (B, P), or the first ``counts`` (B,) of each row."""
    cache = target.start(len(tokens), max_length)
    if counts is None:
        counts = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
    target.prefill(cache, tokens, counts)
    return cache


def _score_chain(target: Target, cache: KVCache, nodes: Tensor) -> Tensor:
    """Logits of a chain (B, N), its first node pending: (B, N, V)."""
    count = torch.full((len(nodes),), nodes.shape[1] - 1, device=nodes.device)
    return target.score(cache, nodes[:, 0], Draft(nodes[:, 1:], count)).logits


def _score_singly(target: Target, cache: KVCache, nodes: Tensor) -> Tensor:
    """The same, one node at a time; the cache keeps them."""
    logits = []
    for i in range(nodes.shape[1]):
        logits.append(_score_chain(target, cache, nodes[:, i : i + 1]))
        target.keep(cache, None, torch.ones_like(cache.lengths))
    return torch.cat(logits, dim=1)


def _batch_equals_rows(target: Target, ids: Tensor) -> bool:
    """Whether rows of unequal length, 5 nodes each, score together as each does alone."""
    length = ids.shape[1]
    context = length - 5
    counts = (context - 3 * torch.arange(len(ids), device=ids.device)).clamp(min=0)  # (B,)
    together = _score_chain(target, _read(target, ids[:, :-5], length, counts), ids[:, -5:])
    alone = [
        _score_chain(target, _read(target, row[:, :-5], length, count[None]), row[:, -5:])
        for row, count in zip(ids.split(1), counts, strict=True)
    ]
    return torch.equal(together, torch.cat(alone))


def classify_mismatch(
    target: Target,
    prompt: Sequence[int],
    expected: Sequence[int],
    found: Sequence[int],
    gap: float = 1e-3,
) -> str:
    """What two greedy continuations of a prompt are to each other: ``equal``, ``tie`` or ``bug``.

    At the first place where they differ, both tokens must be within ``gap`` of the largest logit
    for the difference to be a tie: rounding may then decide. A missing token is a bug.
    """
    if list(expected) == list(found):
        return "equal"
    pairs = zip(expected, found, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        return "bug"
    ids = torch.tensor([[*prompt, *expected[:place]]], device=target.device)
    logits = _score_chain(target, _read(target, ids[:, :-1], ids.shape[1]), ids[:, -1:])[0, 0]
    behind = logits.max() - logits[[expected[place], found[place]]]
    return "tie" if bool((behind < gap).all()) else "bug"
