"""The MLP speculator: small stages that carry the target's own hidden state forward.

Wertheimer et al. (2024), arXiv 2404.19124. The target has just computed a state that knows the
whole text but the pending token. Stage i mixes it with the embedding of the newest token:

    s_i = GELU(LN_i(W_i s_{i-1} + (w_e / w_s) E x_i)),   logits_i = H U s_i + b

where x_0 is the pending token and x_i the one that stage i - 1 drafted: unlike Medusa's heads, each
guess knows the guesses before it. Kept from the paper: the stages, the token conditioning and the
scales w_s, w_e. Ours is small: E is the target's embedding behind one trained projection, H the
target's head on a draft vocabulary behind another (U), both shared by all stages. The paper learns
tables of its own: 170 M numbers at this width, ours has 3 M.

A stage reads one token and one state, so it can read all nodes of a tree's level at once: trees
need no attention here. They grow as in `tree_expansion`.
"""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lab.decoding.graphs import Captures
from specdec_lab.decoding.low_bit import drafting_copy
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.chain import checked_drafting, draft_chain
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.tree_expansion import TreeShape, draft_tree
from specdec_lab.proposers.weights import (
    card_of,
    check_fits,
    load_trained_state,
    read_weights,
    shipped,
)

METHOD = "mlp_speculator"
NUM_STAGES, WIDTH = 4, 768
CHAIN, TREE = 3, 12  # tokens drafted when nobody says how many
OUTPUT_SCALE = 0.3  # of the target's own states when training starts: small logits, small steps


class MLPStages(nn.Module):
    """The trained part: stages, projections and the bias of the head.

    ``embedding`` (V, H) and the weight of ``head`` (Vd, H) are the target's, and stay as they are.
    States are standardised by ``state_mean`` and ``state_spread`` (H,), found on training data:
    some dimensions of a language model are hundreds of times larger than others.
    """

    def __init__(
        self,
        embedding: Tensor,
        head: nn.Linear,
        num_stages: int = NUM_STAGES,
        width: int = WIDTH,
    ) -> None:
        super().__init__()
        hidden, like = embedding.shape[1], {"dtype": embedding.dtype, "device": embedding.device}
        self.num_stages, self.width = num_stages, width
        self.embedding = nn.Embedding.from_pretrained(embedding.detach(), freeze=True)
        self.head = head
        self.carry = nn.ModuleList(
            nn.Linear(width if stage else hidden, width, bias=False, **like)
            for stage in range(num_stages)
        )
        self.token = nn.Linear(hidden, width, bias=False, **like)
        self.norms = nn.ModuleList(nn.LayerNorm(width, **like) for _ in range(num_stages))
        self.output = nn.Linear(width, hidden, bias=False, **like)
        self.register_buffer("state_mean", torch.zeros(hidden, **like))
        self.register_buffer("state_spread", torch.ones(hidden, **like))
        self.token_weight = _token_weight(num_stages)

    def initialise(self, generator: torch.Generator, state_rms: float = 1.0) -> None:
        """Random weights of unit gain; the output starts at ``OUTPUT_SCALE`` of ``state_rms``."""
        for linear in (*self.carry, self.token, self.output):
            drawn = torch.randn(linear.weight.shape, generator=generator)  # alike on every device
            linear.weight.data.copy_(drawn * linear.in_features**-0.5)
        gelu_rms = 0.65  # of GELU(x) for a standard normal x
        self.output.weight.data.mul_(OUTPUT_SCALE * state_rms / gelu_rms)

    def first(self, states: Tensor) -> Tensor:
        """The target's states (..., H) as the first stage reads them."""
        return (states - self.state_mean) / self.state_spread

    def stage(self, number: int, carried: Tensor, tokens: Tensor) -> Tensor:
        """What stage ``number`` carries on, (..., width), having read ``tokens`` (...)."""
        read = self.embedding(tokens)
        read = self.token(F.rms_norm(read, read.shape[-1:]))
        mixed = self.carry[number](carried) + self.token_weight * read
        return F.gelu(self.norms[number](mixed))

    def logits(self, carried: Tensor) -> Tensor:
        """What a stage makes of what it carries: logits (..., Vd)."""
        return self.head(self.output(carried))


def _token_weight(num_stages: int) -> float:
    """w_e / w_s of the paper: over all stages half of the first state's variance is left."""
    state_weight = 0.5 ** (0.5 / num_stages)
    return math.sqrt(1 - state_weight**2) / state_weight


class MLPSpeculator(Proposer):
    """Drafts a chain of at most ``max_k`` tokens, one stage each, from the target's newest state;
    or a ``tree`` as deep as there are stages.

    ``weights`` is a file written by training, or the stages themselves with their ``vocab``; left
    out, the weights that came with the project. ``drafting`` is as in `DraftModel`. Trees that are
    greedy are those of EAGLE-2: the ``width`` most probable nodes of each of ``depth`` levels are
    expanded and the best k kept; else a node of level ``i`` draws ``branching[i]`` children.
    Nothing is kept between steps but the state (B, H) of the last token that the target has read.
    Raises OSError when there are no weights and ValueError when they are for another shape or
    tokenizer, and for a tree with more levels than there are stages.
    """

    def __init__(
        self,
        target: Target,
        weights: str | os.PathLike | MLPStages | None = None,
        drafting: str = "probabilistic",
        tree: bool = False,
        width: int = 3,
        depth: int = 4,
        branching: tuple[int, ...] = (3, 2, 1, 1),
        num_speculative_tokens: int | None = None,
        vocab: DraftVocab | None = None,
    ) -> None:
        self.drafting = checked_drafting(drafting)
        if isinstance(weights, MLPStages):
            stages = weights
        else:
            path = Path(weights) if weights else shipped(METHOD)
            stages, vocab = load_stages(target, path)
            self.card = card_of(path)
        self.shape = _shape(stages, width, depth, branching) if tree else None
        self.stages = drafting_copy(stages).eval()
        self._captures = Captures() if target.graphs else None
        self.vocab = vocab.to(target.device)
        self.vocab_size = target.vocab_size
        self.max_k = None if tree else stages.num_stages
        if num_speculative_tokens is None:
            num_speculative_tokens = TREE if tree else CHAIN
        k = whole_number("num_speculative_tokens", num_speculative_tokens, least=0)
        self.default_k = min(k, self.max_k or k)
        self.hidden_layers = (target.num_layers,)
        self._state = None

    def start(self, batch_size: int, max_length: int) -> None:
        """No state is known before the target has read something."""
        self._state = self.stages.state_mean.expand(batch_size, -1)  # (B, H)

    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Takes the state of the last token kept; a row that kept nothing keeps its state."""
        (states,) = hidden.values()  # (B, M, H)
        if states.shape[1]:
            last = (counts - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[2])
            newest = states.gather(1, last).squeeze(1)
            self._state = torch.where(counts[:, None] > 0, newest, self._state)

    @torch.no_grad()
    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """A chain of ``k`` tokens, or a tree of at most ``k`` nodes, a row; with their laws over
        the draft vocabulary, unless they are greedy.
        """
        if self._state is None:
            raise ValueError("An MLP speculator needs the target's state: call start and observe.")
        if k == 0:
            return Draft.empty(len(context.lengths), context.lengths.device)
        if self.shape:
            return self._draft_tree(context, k, sampling, randomness)
        return self._draft_chain(context, min(k, self.max_k), sampling, randomness)

    def _draft_chain(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        carried = self.stages.first(self._state)

        def next_logits(newest: Tensor, place: int) -> Tensor:
            nonlocal carried
            carried, logits = self._read(place, carried, newest)
            return logits

        return draft_chain(next_logits, context, k, sampling, randomness, self.vocab, self.drafting)

    def _draft_tree(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """Level ``i`` is read by stage ``i``, each node with what was carried on at its parent."""
        first = self.stages.first(self._state)[:, None]  # (B, 1, H)
        carried, logits = self._read(0, first, context.pending[:, None])
        level = 0  # carried: (B, 1 + nodes read, width), the root's first

        def extend(fed: Draft, width: int) -> Tensor:
            nonlocal carried, level
            level += 1
            above = fed.parents[:, -width:] + 1  # (B, width)
            parents = carried.gather(1, above[..., None].expand(-1, -1, carried.shape[2]))
            newest, logits = self._read(level, parents, fed.tokens[:, -width:])
            carried = torch.cat((carried, newest), dim=1)
            return logits

        return draft_tree(
            logits.squeeze(1),
            extend,
            context,
            k,
            sampling,
            randomness,
            self.shape,
            vocab_size=self.vocab_size,
            vocab=self.vocab,
            greedy=self.drafting == "greedy",
        )

    def _read(self, number: int, carried: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What stage ``number`` carries on (..., width) and the logits (..., Vd) made of it."""
        step = partial(self._step, number)
        if self._captures is None:
            return step(carried, tokens)
        return self._captures.run(number, step, carried, tokens)

    def _step(self, number: int, carried: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        carried = self.stages.stage(number, carried, tokens)
        return carried, self.stages.logits(carried)


def _shape(stages: MLPStages, width: int, depth: int, branching: tuple[int, ...]) -> TreeShape:
    """The shape asked for; ValueError if a path of it is longer than there are stages."""
    shape = TreeShape.checked(width, depth, branching)
    if shape.deepest > stages.num_stages:
        raise ValueError(
            f"These weights have {stages.num_stages} stages, and each drafts one level of a tree: "
            f"{shape.deepest} are too many for depth and branching."
        )
    return shape


def load_stages(target: Target, path: Path) -> tuple[MLPStages, DraftVocab]:
    """The stages of a file with the draft vocabulary they were trained for.

    Raises ValueError when they do not fit ``target``.
    """
    tensors, metadata = read_weights(path)
    if metadata.get("method") != METHOD:
        raise ValueError(f"{path} holds weights for {metadata.get('method')}, not for {METHOD}.")
    check_fits(path, metadata, target)
    vocab = DraftVocab(tensors.pop("draft_to_target"), target.vocab_size)
    width, num_stages = int(metadata["width"]), int(metadata["num_stages"])
    stages = new_stages(target, vocab, num_stages, width)
    load_trained_state(stages, tensors)
    return stages, vocab


def new_stages(
    target: Target, vocab: DraftVocab, num_stages: int = NUM_STAGES, width: int = WIDTH
) -> MLPStages:
    """Stages for ``target``, on its device and in its precision; not initialised."""
    embedding = target.model.embed.weight
    return MLPStages(embedding, vocab.head_of(target), num_stages, width)
