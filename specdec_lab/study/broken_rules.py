"""Deliberately broken ways to speculate: what the lessons show, and what the exactness tests must
catch.

Each one is a mistake that somebody shipped or asked for. None is reachable by name from
``generate``; hand the function over as ``verify`` to see the law that it really has.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft, Scores, Verdict
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.tree import ancestors, depths, path_to, reorder
from specdec_lab.decoding.verify import Rule, block, laws, match, prefix_weights, reject
from specdec_lab.study.traversal import traversal_with


def soft_q_for_argmax(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule fed with the draft's softmax, although the drafted tokens were its argmax.

    Made for drafts of ``ArgmaxOf``-like proposers: deterministic tokens, soft ``probs``.
    """
    return reject(context, draft, scores, sampling, randomness)


def unlikely_token_dropped(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Stops the draft in front of a sampled token that its own law found unlikely (below 0.3)."""
    q = draft.probs.gather(2, draft.tokens[..., None]).squeeze(2)
    confident = (q >= 0.3).long().cumprod(1).sum(1)
    shorter = replace(draft, count=torch.minimum(draft.count, confident))
    return reject(context, shorter, scores, sampling, randomness)


def correction_from_target(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule, but a refused token is replaced by a draw from p instead of (p - q)+."""
    verdict = reject(context, draft, scores, sampling, randomness)
    target_probs, _ = laws(context, draft, scores, sampling)
    return replace(verdict, next_token=_draw(target_probs, verdict, context, randomness))


def residual_through_softmax(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule, but max(p - q, 0) goes through a softmax instead of being normalised."""
    verdict = reject(context, draft, scores, sampling, randomness)
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    wrong = (target_probs - draft_probs).clamp(min=0).softmax(-1)
    bonus = (verdict.num_accepted == draft.count)[:, None, None]
    wrong = torch.where(bonus, target_probs, wrong)
    return replace(verdict, next_token=_draw(wrong, verdict, context, randomness))


def block_stops_at_first_failure(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Block verification that stops at the first failed coin instead of keeping the last
    success.
    """
    impatient = _StopAtFirstFailure(randomness)
    return block(context, draft, scores, sampling, impatient)


def block_residual_unweighted(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Block verification that corrects from (p - q)+ instead of (r p - q)+: almost right, and
    wrong.
    """
    verdict = block(context, draft, scores, sampling, randomness)
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    residual = (target_probs - draft_probs).clamp(min=0)
    return replace(verdict, next_token=_draw(residual, verdict, context, randomness))


def block_soft_residual_for_one_hot(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Block verification of deterministic tokens, judged as one-hot but corrected with a soft q."""
    one_hot = replace(draft, probs=None)
    verdict = block(context, one_hot, scores, sampling, randomness)
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    weights = prefix_weights(*laws(context, one_hot, scores, sampling), draft.tokens)
    residual = (weights[..., None] * target_probs - draft_probs).clamp(min=0)
    return replace(verdict, next_token=_draw(residual, verdict, context, randomness))


def fresh_draw_after_mismatch(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Sample-and-match that throws the mismatching draw away and draws from p once more."""
    verdict = match(context, draft, scores, sampling, randomness)
    target_probs, _ = laws(context, draft, scores, sampling)
    refused = verdict.num_accepted < draft.count
    again = _draw(target_probs, verdict, context, randomness)
    return replace(verdict, next_token=torch.where(refused, again, verdict.next_token))


def bonus_dropped(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Ends a fully accepted step without its free token: the right law, at fewer tokens a step."""
    verdict = reject(context, draft, scores, sampling, randomness)
    full = (verdict.num_accepted == draft.count) & (draft.count > 0)
    drafted = torch.cat([verdict.next_token[:, None], draft.tokens], 1)  # (B, N+1)
    last = drafted.gather(1, draft.count[:, None]).squeeze(1)
    return replace(
        verdict,
        num_accepted=torch.where(full, verdict.num_accepted - 1, verdict.num_accepted),
        next_token=torch.where(full, last, verdict.next_token),
    )


def one_uniform_for_all(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule that looks at the same uniform number at every position of the draft."""
    return reject(context, draft, scores, sampling, _SameCoin(randomness))


def siblings_by_rank(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule in a tree drawn without replacement, but siblings are judged from the
    likeliest down instead of in drawing order.
    """
    base = _whole_laws(draft)
    rank = base.gather(2, draft.tokens[..., None]).squeeze(2)
    level = depths(ancestors(draft.parents))[:, 1:]
    meant = torch.arange(level.shape[1], device=level.device) < draft.count[:, None]
    order = (2 * level - rank).masked_fill(~meant, torch.inf).argsort(dim=1, stable=True)
    draft = reorder(replace(draft, probs=base), order)
    earlier = _same_parent(draft).tril(-1).to(base)  # (B, N, N)
    gone = earlier @ torch.nn.functional.one_hot(draft.tokens, base.shape[2]).to(base)
    left = draft.probs.masked_fill(gone > 0, 0)
    draft = replace(draft, probs=left / left.sum(-1, keepdim=True))
    verdict = reject(context, draft, _reordered(scores, order), sampling, randomness)
    return replace(verdict, path=order.gather(1, verdict.path))


def siblings_share_one_residual(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule asked of every sibling as if it were the only one: min(1, p/q) with the p of
    the node, and one (p - q)+ behind them all.
    """
    target_probs, draft_probs = laws(context, draft, scores, sampling)
    seen, rows = ancestors(draft.parents), torch.arange(len(draft.count))
    end, left = torch.zeros_like(draft.count), target_probs[:, 0]  # (B,), (B, V)
    for node in range(draft.tokens.shape[1]):
        judged = (node < draft.count) & (draft.parents[:, node] + 1 == end)
        p, q, token = target_probs[rows, end], draft_probs[:, node], draft.tokens[:, node]
        ratio = torch.where(judged, p[rows, token] / q[rows, token], 0).clamp(max=1)
        accepted = randomness.coin(ratio, context.lengths, Lane.ACCEPT, node)[:, None]
        left = torch.where(judged[:, None], (p - q).clamp(min=0), left)
        left = torch.where(accepted, target_probs[:, node + 1], left)
        end = torch.where(accepted[:, 0], node + 1, end)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, target_probs[rows, end])
    next_token = randomness.draw(left, context.lengths, Lane.RECOVER)
    return Verdict(path_to(seen, end), depths(seen)[rows, end], next_token)


def siblings_with_whole_law(
    context: Context, draft: Draft, scores: Scores, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """The ratio rule in a tree drawn without replacement, told of laws with replacement: the q of
    a sibling still holds those drawn before it.
    """
    return reject(context, replace(draft, probs=_whole_laws(draft)), scores, sampling, randomness)


traversal_weighs_survivors: Rule = traversal_with(
    lambda left_over, weight, draft_prob: left_over / (1 - draft_prob) if draft_prob < 1 else 1.0
)
"""Traversal verification whose weights are S / (1 - q(x)) instead of S / (S + 1 - a)."""


BROKEN_TREE_RULES: dict[str, Rule] = {
    "siblings_by_rank": siblings_by_rank,
    "siblings_share_one_residual": siblings_share_one_residual,
    "siblings_with_whole_law": siblings_with_whole_law,
    "traversal_weighs_survivors": traversal_weighs_survivors,
}
BROKEN_RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        soft_q_for_argmax,
        unlikely_token_dropped,
        correction_from_target,
        residual_through_softmax,
        block_stops_at_first_failure,
        block_residual_unweighted,
        block_soft_residual_for_one_hot,
        fresh_draw_after_mismatch,
        bonus_dropped,
        one_uniform_for_all,
    )
}
NEED_ARGMAX_DRAFT = ("soft_q_for_argmax", "block_soft_residual_for_one_hot")


def _draw(weights: Tensor, verdict: Verdict, context: Context, randomness: Randomness) -> Tensor:
    """Replace the step's last draw by one from ``weights`` (B, N+1, V) at the place of the
    verdict.
    """
    place = verdict.num_accepted[:, None, None].expand(-1, 1, weights.shape[-1])
    chosen = weights.gather(1, place).squeeze(1)
    fallback = torch.where(chosen.sum(-1, keepdim=True) > 0, chosen, torch.ones_like(chosen))
    return randomness.draw(fallback, context.lengths, Lane.RECOVER, offset=1)


def _same_parent(draft: Draft) -> Tensor:
    return draft.parents[:, :, None] == draft.parents[:, None]  # (B, N, N)


def _whole_laws(draft: Draft) -> Tensor:
    """For every node what the first of its siblings was drawn from, (B, N, Vd)."""
    first = _same_parent(draft).long().argmax(2)  # (B, N)
    return draft.probs.gather(1, first[..., None].expand_as(draft.probs))


def _reordered(scores: Scores, order: Tensor) -> Scores:
    entries = torch.nn.functional.pad(order + 1, (1, 0))[..., None]  # (B, N+1, 1)
    return Scores(scores.logits.gather(1, entries.expand_as(scores.logits)))


class _StopAtFirstFailure:
    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.draw = randomness.draw

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        coins = self._randomness.coin(probability, position, lane, offset)
        return coins.long().cumprod(1).bool()


class _SameCoin:
    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.draw = randomness.draw

    def coin(
        self, probability: Tensor, position: Tensor, lane: Lane, offset: Tensor | int = 0
    ) -> Tensor:
        return self._randomness.coin(probability, position, lane, 0)
