"""The exact law of one step of speculation, on vocabularies small enough to look at every branch.

A *law* is a function from the tokens so far to next-token probabilities. The rules that run here
are the production ones (or broken ones, to see what they do); only the uniforms are replaced, by
`enumerate_law`. So every number is exact up to rounding: no samples, no error bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from specdec_lab.decoding.randomness import Lane, Randomness, enumerate_law, enumerate_laws
from specdec_lab.decoding.records import Context, Draft, Scores
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import Rule, choose_rule
from specdec_lab.proposers.tree_expansion import Extend, expand_and_rerank, sample_tree

Law = Callable[[tuple[int, ...]], Sequence[float]]
Outcomes = dict[tuple[int, ...], float]  # emitted tokens -> probability

_AS_GIVEN = Sampling(temperature=1.0)


def step_law(
    rule: str | Rule,
    target_law: Law,
    draft_law: Law,
    k: int = 1,
    *,
    argmax: bool = False,
    tell_law: bool = True,
) -> Outcomes:
    """Law of the tokens that one step emits: a drafted chain of ``k``, judged by ``rule``.

    The drafted tokens are drawn from ``draft_law``, or are its argmax (``argmax``). ``tell_law``
    hands the rule the draft's probabilities; without, the draft counts as one-hot.
    """

    def step(randomness: Randomness) -> tuple[int, ...]:
        context = _context_of_one_token()
        tokens, draft = _drafted(draft_law, k, argmax, tell_law, context, randomness)
        rows = [target_law(tuple(tokens[:i])) for i in range(k + 1)]
        scores = Scores(_rows(rows).log())  # (1, k+1, V)
        judge = choose_rule(rule, draft)
        verdict = judge(context, draft, scores, _AS_GIVEN, randomness)
        return (*tokens[: int(verdict.num_accepted)], int(verdict.next_token))

    return enumerate_law(step)


def tree_step_law(
    rule: str | Rule,
    target_law: Law,
    draft_law: Law,
    branching: Sequence[int] = (2,),
    *,
    size: int | None = None,
) -> Outcomes:
    """Law of the tokens that one step emits: a drafted tree, judged by ``rule``.

    A node of level ``i`` has ``branching[i]`` children, drawn from ``draft_law`` without
    replacement. With ``size`` the tree is fixed instead: the ``size`` most probable of the nodes
    that EAGLE-2 scores, ``branching[0]`` on each of as many levels.
    """

    def step(randomness: Randomness, which: list[int]) -> list[tuple[int, ...]]:
        rows = len(which)
        context = _context_of_one_token(rows)
        first, extend = _over_paths(draft_law, rows)
        if size is None:
            how = {"lengths": context.lengths, "randomness": randomness}
            draft = sample_tree(first, extend, branching=branching, **how)
        else:
            how = {"size": size, "width": branching[0], "depth": len(branching)}
            draft = expand_and_rerank(first, extend, **how)
        texts = [[(), *texts] for texts in _texts(draft)]
        scores = Scores(torch.stack([_rows(map(target_law, row))[0].log() for row in texts]))
        judge = choose_rule(rule, draft)
        verdict = judge(context, draft, scores, _AS_GIVEN, randomness)
        ends = verdict.path.gather(1, (verdict.num_accepted[:, None] - 1).clamp(min=0)).squeeze(1)
        ends = (ends + 1) * (verdict.num_accepted > 0)
        closing = zip(texts, ends.tolist(), verdict.next_token.tolist(), strict=True)
        return [(*row[end], token) for row, end, token in closing]

    return enumerate_laws(step, 1)[0]


def first_token_law(
    rule: str | Rule,
    target_probs: Sequence[float],
    draft_probs: Sequence[float],
    *,
    argmax: bool = False,
    tell_law: bool = True,
) -> list[float]:
    """Law (V,) of the first token that a step with one drafted token emits at one place."""
    outcomes = step_law(
        rule,
        lambda tokens: target_probs,
        lambda tokens: draft_probs,
        argmax=argmax,
        tell_law=tell_law,
    )
    law = [0.0] * len(target_probs)
    for tokens, weight in outcomes.items():
        law[tokens[0]] += weight
    return law


def completed(outcomes: Outcomes, target_law: Law, length: int) -> Outcomes:
    """``outcomes`` with every shorter text continued by the target itself up to ``length`` tokens.

    What a step did wrong stays visible; what comes after it is right.
    """
    whole: Outcomes = {}
    for tokens, weight in outcomes.items():
        rest = sequence_law(lambda more, done=tokens: target_law(done + more), length - len(tokens))
        for more, share in rest.items():
            whole[tokens + more] = whole.get(tokens + more, 0.0) + weight * share
    return whole


def sequence_law(law: Law, length: int) -> Outcomes:
    """The law of ``length`` tokens, each drawn from ``law``: what plain decoding does."""
    outcomes: Outcomes = {(): 1.0}
    for _ in range(length):
        outcomes = {
            (*tokens, token): weight * p
            for tokens, weight in outcomes.items()
            for token, p in enumerate(law(tokens))
            if p > 0
        }
    return outcomes


def tokens_per_step(outcomes: Outcomes) -> float:
    """Expected number of tokens that a step emits."""
    return sum(weight * len(tokens) for tokens, weight in outcomes.items())


def total_variation(
    one: Mapping | Sequence[float] | Tensor, other: Mapping | Sequence[float] | Tensor
) -> float:
    """Half the sum of absolute differences of two laws; both mappings, or both vectors."""
    if not isinstance(one, Mapping):
        one, other = dict(enumerate(_list(one))), dict(enumerate(_list(other)))
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in one.keys() | other.keys()) / 2


def toy_law(seed: int, vocab_size: int = 3) -> Law:
    """A law that looks random: other probabilities after every text, always the same for a seed."""

    def law(tokens: tuple[int, ...]) -> list[float]:
        weights = np.random.default_rng([seed, *tokens]).random(vocab_size) ** 2 + 0.02
        return (weights / weights.sum()).tolist()

    known = {
        tokens: law(tokens)
        for length in range(6)
        for tokens in product(range(vocab_size), repeat=length)
    }
    return lambda tokens: known[tokens] if tokens in known else law(tokens)


def _context_of_one_token(rows: int = 1) -> Context:
    one = torch.ones(rows, dtype=torch.long)
    return Context(tokens=torch.zeros(rows, 1, dtype=torch.long), lengths=one, prompt_lengths=one)


def _texts(draft: Draft) -> list[list[tuple[int, ...]]]:
    """The tokens on the path to every drafted node of every row."""
    found: list[list[tuple[int, ...]]] = []
    for tokens, parents in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        found.append([])
        for token, parent in zip(tokens, parents, strict=True):
            found[-1].append((*(found[-1][parent] if parent >= 0 else ()), token))
    return found


def _over_paths(law: Law, rows: int) -> tuple[Tensor, Extend]:
    """A law as a drafter's: behind the text (B, V), and behind the last nodes of a tree."""

    def extend(fed: Draft, width: int) -> Tensor:
        return torch.cat([_rows(map(law, texts[-width:])) for texts in _texts(fed)])

    return _rows([law(())])[0].expand(rows, -1), extend


def _drafted(
    law: Law, k: int, argmax: bool, tell_law: bool, context: Context, randomness: Randomness
) -> tuple[list[int], Draft]:
    tokens: list[int] = []
    rows: list[Sequence[float]] = []
    for place in range(k):
        rows.append(law(tuple(tokens)))
        probs = torch.tensor([rows[-1]], dtype=torch.float64)  # (1, V)
        chosen = (
            probs.argmax(-1)
            if argmax
            else randomness.draw(probs, context.lengths, Lane.DRAFT, place)
        )
        tokens.append(int(chosen))
    draft = Draft(
        torch.tensor([tokens]),
        torch.tensor([k]),
        probs=_rows(rows) if tell_law else None,
    )
    return tokens, draft


def _rows(rows: Iterable[Sequence[float]]) -> Tensor:
    return torch.tensor([list(row) for row in rows], dtype=torch.float64)[None]  # (1, rows, V)


def _list(values: Sequence[float] | Tensor) -> list[float]:
    return values.tolist() if isinstance(values, Tensor) else list(values)
