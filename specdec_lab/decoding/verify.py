"""Three lossless rules that judge a draft: ``match``, ``reject`` and, for chains, ``block``.

Each takes the same five things and returns a ``Verdict``; none reads a tensor on the host. With
``p_i`` the target's law after ``i`` drafted tokens and ``q_i`` the law that drafted token ``i`` was
drawn from, all of them emit ``n`` accepted tokens and exactly one more, and the joint law of what
is emitted is the target's own.

``match``   draws from ``p_i`` at every place and keeps going while the draw is what was drafted.
``reject``  accepts with probability min(1, p/q) and corrects from the residual (Leviathan et al.
2023, algorithm 1;
            Chen et al. 2023).
``block``   judges prefixes as a whole (Sun et al. 2024, algorithm 2): never fewer accepted tokens
than ``reject``.

In a tree, ``match`` descends to the child that was drawn, and ``reject`` judges the children of a
node in the order in which they were drafted, each against what the refused ones left over
(recursive rejection, Miao et al. 2024; without replacement, Chen et al. 2024 and Jeon et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft, Scores, Verdict
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.decoding.tree import ancestors, depths, path_to

Rule = Callable[[Context, Draft, Scores, Sampling, Randomness], Verdict]


def match(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Sample-and-match: the target draws a token at every place and accepts what equals the draft.

    Right for any proposal that is a fixed function of the context (and, less efficiently, for a
    sampled one). The draw at a place uses the uniform of its absolute position, so the text equals
    plain decoding with the same seed. Siblings in a tree share that uniform: only one of them lies
    on the path that the draws take.
    """
    seen = None if draft.parents is None else ancestors(draft.parents)
    places = torch.arange(draft.tokens.shape[1] + 1, device=draft.tokens.device)  # (N+1,)
    depth = places if seen is None else depths(seen)
    history = history_of(sampling, context, draft, scores.logits.shape[-1])
    position = context.lengths[:, None] + depth  # (B, N+1)
    drawn = sampling.choose(scores.logits, history, randomness, position)  # (B, N+1)
    if seen is None:
        hits = (drawn[:, :-1] == draft.tokens) & _meant(draft)
        return _verdict(_leading(hits), drawn)
    hits = (drawn.gather(1, draft.parents + 1) == draft.tokens) & _meant(draft)
    end = _deepest(hits, seen, depth)
    return _tree_verdict(end, seen, drawn.gather(1, end[:, None]).squeeze(1))


def reject(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Rejection sampling token by token: accept x with min(1, p(x)/q(x)), else draw from (p - q)+
    normalised. Of several children of a node, each refusal leaves (p - q)+ normalised as the p of
    the next; its q is the law *it* was drawn from, without replacement or with.
    """
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    if draft.parents is not None:
        return _reject_in_tree(context, draft, target_probs, draft_probs, randomness)
    chosen = draft.tokens[..., None]
    p = target_probs[:, :-1].gather(2, chosen).squeeze(2)  # (B, N)
    q = draft_probs[:, :-1].gather(2, chosen).squeeze(2)
    ratio = torch.where(q > 0, p / q, 0).clamp(max=1)  # q(x) = 0 cannot have been drawn
    hits = _coins(ratio, context, randomness) & _meant(draft)
    num_accepted = _leading(hits)
    residual = _row(target_probs, num_accepted) - _row(draft_probs, num_accepted)  # (B, V)
    return _finish(
        draft, num_accepted, residual, _row(target_probs, num_accepted), context, randomness
    )


def block(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Block verification: keep the longest prefix whose own coin succeeds, and correct from (r p -
    q)+.

    ``r_i = min(1, r_{i-1} p(x_i)/q(x_i))`` is the weight of the prefix; coin ``i`` has probability
    ``S / (S + 1 - r_i)`` with ``S = sum (r_i p_i - q_i)+``, and ``r_k`` for the whole draft. *All*
    coins are looked at. Raises ValueError for a tree.
    """
    check_chain(draft, "block")
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    weights = prefix_weights(target_probs, draft_probs, draft.tokens)  # (B, N+1), first column 1
    surplus = (weights[..., None] * target_probs - draft_probs).clamp(min=0).sum(-1)  # (B, N+1)
    room = surplus + 1 - weights
    heads = torch.where(room > 0, surplus / room, 1)
    depth = torch.arange(weights.shape[1], device=weights.device)
    heads = torch.where(depth == draft.count[:, None], weights, heads)[:, 1:]  # (B, N)
    success = _coins(heads, context, randomness) & _meant(draft)
    reached = torch.cat([torch.zeros_like(draft.count)[:, None], success * depth[1:]], 1)
    num_accepted = reached.amax(1)  # the last success, whatever failed before it
    weight = weights.gather(1, num_accepted[:, None])  # (B, 1)
    residual = weight * _row(target_probs, num_accepted) - _row(draft_probs, num_accepted)
    return _finish(
        draft, num_accepted, residual, _row(target_probs, num_accepted), context, randomness
    )


RULES: dict[str, Rule] = {"match": match, "reject": reject, "block": block}


def check_rule(verify: str | Rule) -> None:
    """Raises ValueError unless ``verify`` is ``auto``, the name of a rule, or a rule."""
    if not callable(verify) and verify not in ("auto", *RULES):
        raise ValueError(f"verify must be auto, {', '.join(RULES)} or a rule, not {verify!r}.")


def check_chain(draft: Draft, rule: str) -> None:
    """Raises ValueError for a tree: ``rule`` would judge it as if each node followed the last."""
    if draft.parents is not None:
        raise ValueError(f"{rule} judges chains; verify a tree with match or reject.")


def choose_rule(verify: str | Rule, draft: Draft) -> Rule:
    """The rule meant; ``auto`` is ``match`` without a draft law and ``reject`` with one."""
    if verify == "auto":
        verify = "match" if draft.probs is None else "reject"
    return verify if callable(verify) else RULES[verify]


def laws(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Target and draft laws over the target's vocabulary, both (B, N+1, V) float64.

    Row ``i`` of the first judges the children of node ``i`` (0 is the pending token), row ``i`` of
    the second is what drafted token ``i`` was drawn from. The second's last row, and every row at
    or beyond the number drafted, is all zeros: nothing was drawn there, and the residual ``p - 0``
    is the bonus law.
    """
    vocab_size = scores.logits.shape[-1]
    history = history_of(sampling, context, draft, vocab_size)
    target_probs = sampling.probs(scores.logits, history).double()
    draft_probs = torch.zeros_like(target_probs)
    draft_probs[:, :-1] = _over_target_ids(draft, vocab_size) * _meant(draft)[..., None]
    return target_probs, draft_probs


def prefix_weights(target_probs: Tensor, draft_probs: Tensor, tokens: Tensor) -> Tensor:
    """``r_0 = 1, r_i = min(1, r_{i-1} p(x_i)/q(x_i))``, (B, N+1) from laws (B, N+1, V)."""
    chosen = tokens[..., None]
    p = target_probs[:, :-1].gather(2, chosen).squeeze(2)  # (B, N)
    q = draft_probs[:, :-1].gather(2, chosen).squeeze(2)
    ratio = torch.where(q > 0, p / q, 0)
    weights = [torch.ones_like(target_probs[:, 0, 0])]
    for place in range(tokens.shape[1]):
        weights.append((weights[-1] * ratio[:, place]).clamp(max=1))
    return torch.stack(weights, 1)


def _over_target_ids(draft: Draft, vocab_size: int) -> Tensor:
    shape = (*draft.tokens.shape, vocab_size)
    blank = torch.zeros(shape, dtype=torch.float64, device=draft.tokens.device)  # (B, N, V)
    if draft.probs is None:
        return blank.scatter(2, draft.tokens[..., None], 1.0)
    probs = draft.probs.double()
    if draft.draft_to_target is None:
        blank[..., : probs.shape[-1]] = probs
        return blank
    return blank.index_copy(2, draft.draft_to_target, probs)


def _meant(draft: Draft) -> Tensor:
    places = torch.arange(draft.tokens.shape[1], device=draft.tokens.device)
    return places < draft.count[:, None]  # (B, N)


def _coins(probability: Tensor, context: Context, randomness: Randomness) -> Tensor:
    """One coin per drafted place, (B, N)."""
    offset = torch.arange(probability.shape[1], device=probability.device).expand_as(probability)
    position = context.lengths[:, None].expand_as(probability)
    return randomness.coin(probability, position, Lane.ACCEPT, offset)


def _leading(hits: Tensor) -> Tensor:
    """How many of the first places of each row are all True, (B,)."""
    return hits.long().cumprod(1).sum(1)


def _deepest(hits: Tensor, seen: Tensor, depth: Tensor) -> Tensor:
    """The deepest entry (B,) whose whole path are ``hits`` (B, N); 0, the root, always is one."""
    missed = torch.nn.functional.pad(~hits, (1, 0))  # (B, N+1)
    reached = ~(seen & missed[:, None]).any(-1)
    return torch.where(reached, depth, -1).argmax(1)


def _reject_in_tree(
    context: Context,
    draft: Draft,
    target_probs: Tensor,
    draft_probs: Tensor,
    randomness: Randomness,
) -> Verdict:
    """One pass over the nodes: parents stand before their children, and siblings in drawing order,
    so a node is judged exactly when its parent is where the row has arrived.
    """
    arrived = torch.zeros_like(draft.count)  # (B,) entry, 0 is the root
    wanted = target_probs[:, 0]  # (B, V) what the target still asks for there
    for node, meant in enumerate(_meant(draft).unbind(1)):
        token, q = draft.tokens[:, node, None], draft_probs[:, node]
        judged = meant & (draft.parents[:, node] + 1 == arrived)
        p_token, q_token = (law.gather(1, token).squeeze(1) for law in (wanted, q))
        ratio = torch.where(judged & (q_token > 0), p_token / q_token, 0).clamp(max=1)
        accepted = randomness.coin(ratio, context.lengths, Lane.ACCEPT, node)
        left = torch.where((judged & ~accepted)[:, None], _left_over(wanted, q), wanted)
        wanted = torch.where(accepted[:, None], target_probs[:, node + 1], left)
        arrived = torch.where(accepted, node + 1, arrived)
    next_token = randomness.draw(wanted, context.lengths, Lane.RECOVER)
    return _tree_verdict(arrived, ancestors(draft.parents), next_token)


def _left_over(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    """(p - q)+ normalised, (B, V); p itself where nothing is left but rounding."""
    residual = (target_probs - draft_probs).clamp(min=0)
    mass = residual.sum(-1, keepdim=True)
    return torch.where(mass > 0, residual / mass, target_probs)


def _tree_verdict(end: Tensor, seen: Tensor, next_token: Tensor) -> Verdict:
    num_accepted = depths(seen).gather(1, end[:, None]).squeeze(1)
    return Verdict(path_to(seen, end), num_accepted, next_token)


def _row(laws_of_places: Tensor, place: Tensor) -> Tensor:
    index = place[:, None, None].expand(-1, 1, laws_of_places.shape[-1])
    return laws_of_places.gather(1, index).squeeze(1)  # (B, V)


def _finish(
    draft: Draft,
    num_accepted: Tensor,
    residual: Tensor,
    target_probs: Tensor,
    context: Context,
    randomness: Randomness,
) -> Verdict:
    """Draw the recovered (or bonus) token from the positive part of ``residual``, else from the
    target's law.
    """
    residual = residual.clamp(min=0)
    empty = ~(
        residual.sum(-1, keepdim=True) > 0
    )  # p equals q up to rounding: reached by rounding alone
    weights = torch.where(empty, target_probs, residual)
    next_token = randomness.draw(weights, context.lengths, Lane.RECOVER)
    path = torch.arange(draft.tokens.shape[1], device=next_token.device)
    return Verdict(path.expand_as(draft.tokens), num_accepted, next_token)


def _verdict(num_accepted: Tensor, drawn: Tensor) -> Verdict:
    path = torch.arange(drawn.shape[1] - 1, device=drawn.device).expand(drawn.shape[0], -1)
    next_token = drawn.gather(1, num_accepted[:, None]).squeeze(1)
    return Verdict(path, num_accepted, next_token)
