"""What a drafter would have drafted at every place of a text that is known already.

`replay` asks this of proposers that look at the text alone. Here the target's states along the text
are handed over too, so that it can be asked of every proposer: a step of the loop, in which nothing
drafted is kept and the text goes on by one token. No target runs meanwhile; ten texts cost what one
costs.

What comes out is a chance for every place and every drafted token: that the loop would take it,
given that the text is this one. Greedy it is 0 or 1. Sampled, the draft's tokens are those of the
text, and a token x of the text was drafted and accepted with chance min(1, q(x) / p(x)): the target
writes x with p(x), and of that min(p(x), q(x)) comes by acceptance (Leviathan et al. 2023, A.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from specdec_lab.decoding.randomness import Lane
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.proposers.draft_model import DraftModel


@dataclass(frozen=True, slots=True)
class KnownTexts:
    """Prompts and their answers as the rows of a batch, with what the target makes of them.

    ``target_probs`` are its laws at the places of the answers, under the sampling that wrote them;
    None for greedy texts, where the text itself says all.
    """

    tokens: Tensor  # (B, L), padded with 0
    prompt_lengths: Tensor  # (B,)
    lengths: Tensor  # (B,)
    hidden: dict[int, Tensor] = field(default_factory=dict)  # layer -> (B, L, H)
    target_probs: Tensor | None = None  # (B, T, V)

    @property
    def num_places(self) -> int:
        """T, the tokens of the longest answer."""
        return int((self.lengths - self.prompt_lengths).max())

    def following(self, place: int, number: int) -> Tensor:
        """``number`` tokens of each answer from ``place`` on, (B, number); -1 behind its end."""
        at = self.prompt_lengths[:, None] + place + torch.arange(number)  # (B, number)
        found = self.tokens.gather(1, at.clamp(max=self.tokens.shape[1] - 1))
        return found.where(at < self.lengths[:, None], -1)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What would be taken of the draft at every place of every answer.

    ``chances`` of drafted token d, given that those before it were taken; ``drafted`` is how many
    tokens a draft has. ``overlap`` is sum min(p, q) of each law along the text (NaN where the draft
    vocabulary lacks the text), for drafts that are drawn. Of a tree, ``chances`` follow the path of
    the text down to its last node that was drafted, and ``drafted`` is one more if that one has
    children.
    """

    chances: Tensor  # (B, T, K) float64
    drafted: Tensor  # (B, T)
    overlap: Tensor | None = None  # (B, T, K) float64


def read_texts(
    target: Target,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    hidden_layers: Sequence[int] = (),
    sampling: Sampling | None = None,
) -> KnownTexts:
    """Prompts and answers as one batch, with the states of ``hidden_layers`` along them; with the
    ``sampling`` that wrote them, unless it is greedy, also the target's laws. One forward.
    """
    rows = [torch.tensor([*p, *a]) for p, a in zip(prompts, answers, strict=True)]
    tokens = pad_sequence(rows, batch_first=True)  # (B, L)
    lengths = torch.tensor([len(row) for row in rows])
    prompt_lengths = torch.tensor([len(prompt) for prompt in prompts])
    texts = KnownTexts(tokens, prompt_lengths, lengths)
    sampled = sampling is not None and not sampling.is_greedy
    layers = {*hidden_layers, *([target.num_layers] if sampled else [])}
    if not layers:
        return texts
    cache = target.start(*tokens.shape)
    hidden = target.prefill(cache, tokens, lengths, sorted(layers))
    probs = _laws(target, texts, hidden[target.num_layers], sampling) if sampled else None
    kept = {layer: hidden[layer] for layer in hidden_layers}
    return KnownTexts(tokens, prompt_lengths, lengths, kept, probs)


def _laws(target: Target, texts: KnownTexts, states: Tensor, sampling: Sampling) -> Tensor:
    """The target's laws (B, T, V) at the places of the answers, from its final states."""
    behind = texts.prompt_lengths[:, None] - 1 + torch.arange(texts.num_places)  # (B, T)
    behind = behind.clamp(max=states.shape[1] - 1)[..., None].expand(-1, -1, states.shape[2])
    with torch.no_grad():
        return sampling.probs(target.model.head(states.gather(1, behind)))


def acceptance_along(
    proposer: Any, texts: KnownTexts, k: int, sampling: Sampling | None = None
) -> Acceptance:
    """What of ``k`` drafted tokens would be taken at every place, under ``sampling`` (greedy).

    ``proposer`` must draft the first tokens alike whatever k is, as all of ours do but trees, and
    read nothing but the text and the target's states. Raises ValueError for sampled trees, which
    have no path that the text alone tells.
    """
    sampling = sampling or Sampling()
    judge = _judge_sampled if texts.target_probs is not None else _judge_greedy
    drafts = enumerate(_drafts_along(proposer, texts, k, sampling))
    judged = [judge(texts, place, draft, proposer, k) for place, draft in drafts]
    chances, drafted, overlap = zip(*judged, strict=True)
    shares = None if overlap[0] is None else torch.stack(overlap, 1)
    return Acceptance(torch.stack(chances, 1), torch.stack(drafted, 1), shares)


def acceptance_of(
    proposer: Any, texts: KnownTexts, k: int, sampling: Sampling | None = None
) -> Acceptance:
    """As `acceptance_along`, but a draft model is asked for one token a place, which says all."""
    if type(proposer) is DraftModel:
        return carried_on(acceptance_along(proposer, texts, 1, sampling), k)
    return acceptance_along(proposer, texts, k, sampling)


def carried_on(first: Acceptance, k: int) -> Acceptance:
    """``k`` drafted tokens a step from what was found for one: for drafters that say the same of a
    place whether they come to it by drafting or by reading, as a draft model does.
    """
    places = first.chances.shape[1]
    at = torch.arange(places)[:, None] + torch.arange(k)  # (T, k)
    inside = at < places
    at = at.clamp(max=places - 1)
    chances = first.chances[:, at, 0].where(inside, 0)  # (B, T, k)
    overlap = None
    if first.overlap is not None:
        overlap = first.overlap[:, at, 0].where(inside, torch.nan)
    return Acceptance(chances, first.drafted * k, overlap)


def _drafts_along(proposer: Any, texts: KnownTexts, k: int, sampling: Sampling) -> Iterator[Draft]:
    """The draft at place 0, 1, ... of all answers; of one that has ended, its last draft again."""
    counts = texts.prompt_lengths - 1
    width = int(counts.max())
    if hasattr(proposer, "start"):
        proposer.start(len(texts.tokens), texts.tokens.shape[1] + k)
    observe = getattr(proposer, "observe", lambda tokens, counts, hidden: None)
    states = {i: texts.hidden[i] for i in getattr(proposer, "hidden_layers", ())}
    observe(texts.tokens[:, :width], counts, {i: x[:, :width] for i, x in states.items()})
    randomness = TextRandomness(texts, getattr(proposer, "vocab", None))
    last = texts.lengths - 1
    lengths = texts.prompt_lengths
    for _ in range(texts.num_places):
        yield proposer.propose(
            Context(texts.tokens, lengths, texts.prompt_lengths), k, sampling, randomness
        )
        pending = (lengths - 1)[:, None]  # (B, 1)
        hidden = {
            i: x.gather(1, pending[..., None].expand(-1, -1, x.shape[2])) for i, x in states.items()
        }
        observe(texts.tokens.gather(1, pending), (lengths < last).long(), hidden)
        lengths = torch.minimum(lengths + 1, last)


class TextRandomness:
    """Draws what the text says, so that the laws of a draft are those along the text.

    Where a law is over ``vocab`` and that lacks the token, the draw is its first token: what
    follows of that draft means nothing.
    """

    def __init__(self, texts: KnownTexts, vocab: Any = None) -> None:
        self._tokens, self._vocab = texts.tokens, vocab

    def draw(self, probs: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0) -> Tensor:
        """The tokens (B, ...) at ``position + offset``, in the numbering of ``probs`` (..., Vd)."""
        at = (position + offset).clamp(max=self._tokens.shape[1] - 1)
        tokens = self._tokens.gather(1, at.flatten(1) if at.ndim > 1 else at[:, None]).view_as(at)
        return _numbered(tokens, probs, self._vocab).clamp(min=0)


def _numbered(tokens: Tensor, probs: Tensor, vocab: Any) -> Tensor:
    """Target ids as indices of ``probs``; -1 for what a draft vocabulary lacks."""
    small = vocab is not None and probs.shape[-1] == len(vocab)
    return vocab.to_draft(tokens) if small else tokens


def _judge_greedy(
    texts: KnownTexts, place: int, draft: Draft, proposer: Any, k: int
) -> tuple[Tensor, Tensor, None]:
    """1 (B, k) for each drafted token that the text goes on with, and how many are judged (B,)."""
    if draft.parents is not None:
        return *_follow(texts, place, draft, k), None
    return _agreeing(texts, place, draft, k), draft.count.clamp(max=k), None


def _agreeing(texts: KnownTexts, place: int, draft: Draft, k: int) -> Tensor:
    """Which drafted tokens of a chain are those of the text, (B, k) as 0 and 1."""
    width = draft.tokens.shape[1]
    same = draft.tokens == texts.following(place, width)
    same &= torch.arange(width) < draft.count[:, None]
    return torch.nn.functional.pad(same.double(), (0, k - width))


def _follow(texts: KnownTexts, place: int, draft: Draft, k: int) -> tuple[Tensor, Tensor]:
    """The way of the text down a tree: 1 (B, k) for each node on it, and its length, one more where
    the last node has children.
    """
    following = texts.following(place, k)  # (B, k)
    rows = range(len(draft.tokens))
    parents, tokens, counts = draft.parents.tolist(), draft.tokens.tolist(), draft.count.tolist()
    paths = [
        _path(parents[row][: counts[row]], tokens[row], following[row].tolist()) for row in rows
    ]
    taken, refused = torch.tensor(paths).unbind(1)  # (B,)
    return (torch.arange(k) < taken[:, None]).double(), taken + refused


def _path(parents: list[int], tokens: list[int], text: list[int]) -> tuple[int, bool]:
    """How deep the text goes down a tree, and whether children of that node were drafted."""
    node, depth = -1, 0
    while True:
        children = [i for i, parent in enumerate(parents) if parent == node]
        matching = [i for i in children if tokens[i] == text[depth]] if depth < len(text) else []
        if not matching:
            return depth, bool(children)
        node, depth = matching[0], depth + 1


def _judge_sampled(
    texts: KnownTexts, place: int, draft: Draft, proposer: Any, k: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """min(1, q(x) / p(x)) of the text's tokens x (B, k), and the overlap of each p and q (B, k)."""
    if draft.parents is not None:
        raise ValueError("A sampled tree can't be judged along a text; decode instead.")
    if draft.probs is None:
        return _agreeing(texts, place, draft, k), draft.count.clamp(max=k), None
    vocab, width = getattr(proposer, "vocab", None), draft.probs.shape[1]
    following = texts.following(place, width)  # (B, width)
    inside = following >= 0
    own = _numbered(following.clamp(min=0), draft.probs, vocab)  # (B, width)
    laws = _laws_at(texts, place, width)  # (B, width, V)
    p = laws.gather(2, following.clamp(min=0)[..., None])[..., 0].double()
    q = draft.probs.gather(2, own.clamp(min=0)[..., None])[..., 0].double() * (own >= 0)
    chances = (q / p.clamp(min=1e-30)).clamp(max=1) * inside
    known = torch.nn.functional.pad((own >= 0).long(), (1, -1), value=1).cumprod(1).bool()
    shares = _overlaps(laws, draft.probs, vocab).masked_fill(~(known & inside), torch.nan)
    pad = (0, k - width)
    return (
        torch.nn.functional.pad(chances * known, pad),
        draft.count.clamp(max=k),
        torch.nn.functional.pad(shares, pad, value=torch.nan),
    )


def _laws_at(texts: KnownTexts, place: int, number: int) -> Tensor:
    """The target's laws (B, number, V) from ``place`` on; the last one again behind the end."""
    at = (place + torch.arange(number)).clamp(max=texts.num_places - 1)
    return texts.target_probs[:, at]


def _overlaps(target_probs: Tensor, draft_probs: Tensor, vocab: Any) -> Tensor:
    """sum min(p, q) of laws (B, N, V) and (B, N, Vd), (B, N) float64."""
    if draft_probs.shape[-1] != target_probs.shape[-1]:
        target_probs = target_probs.index_select(-1, vocab.draft_to_target)
    return torch.minimum(target_probs, draft_probs).sum(-1).double()
