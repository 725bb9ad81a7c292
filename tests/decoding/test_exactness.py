"""The gate: the production loop under the enumerating randomness has the target's law, to 1e-12.

    pytest tests/decoding/test_exactness.py

One step from every reachable context is enumerated, many branches as the rows of one batch, and the
laws are composed; for the smallest vocabularies the whole of `generate` is enumerated as well. The
same check must catch every broken rule.
"""

from collections.abc import Sequence

import pytest
import torch

from specdec_lab.decoding.decode import run
from specdec_lab.decoding.randomness import EnumeratingRandomness, enumerate_laws
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.study.broken_rules import BROKEN_RULES, NEED_ARGMAX_DRAFT
from toys import (
    PLAIN,
    PROMPT,
    SHAPES,
    ToyDrafter,
    ToyTarget,
    pair_of_laws,
    random_law,
    sequence_law,
    total_variation,
    whole_law,
)


def request(target, prompts, drafter, k, rule, max_new, sampling=PLAIN) -> Request:
    return Request.checked(target, prompts, drafter, k, sampling, rule, max_new, None)


def first_steps(target, drafter, k, rule, sampling=PLAIN):
    """Laws of the first step from each of several contexts of one length, with a given budget."""

    def laws(contexts: Sequence[tuple[int, ...]], budget: int) -> list[dict]:
        def take_step(randomness: EnumeratingRandomness, which: list[int]) -> list[tuple]:
            prompts = [contexts[i] for i in which]
            asked = request(target, prompts, drafter, k, rule, budget, sampling)
            step = next(run(target, asked, randomness))
            ended = [reason is not None for reason in step.finish_reasons]
            return [(tuple(row.tokens), end) for row, end in zip(step.rows, ended, strict=True)]

        return enumerate_laws(take_step, len(contexts))

    return laws


def composed_law(step_laws, prompt: tuple[int, ...], max_new: int) -> dict:
    """Law of whole outputs when each step starts afresh from the context that the last one left."""
    finished: dict = {}
    growing: list[dict] = [{(): 1.0}, *({} for _ in range(max_new))]  # by length
    for length, outputs in enumerate(growing[:-1]):
        laws = step_laws([(*prompt, *output) for output in outputs], max_new - length)
        for (output, weight), law in zip(outputs.items(), laws, strict=True):
            for (tokens, ended), share in law.items():
                bin_ = finished if ended else growing[length + len(tokens)]
                bin_[*output, *tokens] = bin_.get((*output, *tokens), 0.0) + weight * share
    return finished


def assert_same_law(got: dict, want: dict) -> None:
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    worst = max(abs(got.get(x, 0.0) - want.get(x, 0.0)) for x in got.keys() | want.keys())
    assert worst < 1e-12, f"largest error {worst}"


@pytest.mark.parametrize("eos", [(), (2,)], ids=["length_cut", "eos"])
@pytest.mark.parametrize("rule", ["match", "reject", "block"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_composed_steps_have_the_targets_law(shape, k, rule, eos):
    target_law, draft_law = pair_of_laws(shape, 3 * k, 3)
    drafter = ToyDrafter(draft_law, tell_law=rule != "match", argmax=rule == "match")
    step_laws = first_steps(ToyTarget(target_law, 3, eos), drafter, k, rule)
    got = composed_law(step_laws, PROMPT, k + 1)
    assert_same_law(got, sequence_law(target_law, PROMPT, k + 1, eos))


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_branches_run_one_by_one_have_the_same_law(rule):
    """The batch of branches is only faster: rows alone (B = 1) are held to the same law."""
    target_law, draft_law = pair_of_laws("dense", 7, 2)
    drafter = ToyDrafter(draft_law, tell_law=rule != "match", argmax=rule == "match")
    got = whole_law(ToyTarget(target_law, 2), drafter, 2, rule, 3, width=1)
    assert_same_law(got, sequence_law(target_law, PROMPT, 3))


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("vocab_size", "k", "max_new"), [(2, 2, 4), (3, 1, 3)])
def test_whole_generations_have_the_targets_law(shape, rule, vocab_size, k, max_new):
    target_law, draft_law = pair_of_laws(shape, 7, vocab_size)
    target = ToyTarget(target_law, vocab_size)
    drafter = ToyDrafter(draft_law, tell_law=rule != "match", argmax=rule == "match")
    got = whole_law(target, drafter, k, rule, max_new)
    assert_same_law(got, sequence_law(target_law, PROMPT, max_new))


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_matching_a_sampled_draft_is_exact_as_well(rule):
    target_law, draft_law = pair_of_laws("dense", 5, 3)
    step_laws = first_steps(ToyTarget(target_law, 3), ToyDrafter(draft_law), 2, rule)
    assert_same_law(composed_law(step_laws, PROMPT, 3), sequence_law(target_law, PROMPT, 3))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.5),
        Sampling(temperature=1.0, top_k=2),
        Sampling(temperature=0.8, top_p=0.6),
        Sampling(temperature=1.0, min_p=0.4),
        Sampling(temperature=1.0, presence_penalty=0.7, frequency_penalty=0.3),
        Sampling(temperature=1.0, repetition_penalty=1.5, bias={1: 0.5}),
    ],
    ids=["t", "top_k", "top_p", "min_p", "presence", "repetition_bias"],
)
@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_exact_relative_to_every_transform_along_the_drafted_path(sampling, rule):
    """The first step, completed by the transformed law token by token, has the transformed law."""
    target_law, draft_law = pair_of_laws("dense", 11, 3)

    def transformed(context: tuple[int, ...]) -> list[float]:
        tokens, lengths = torch.tensor([context]), torch.tensor([len(context)])
        past = Context(tokens, lengths, torch.tensor([len(PROMPT)]))
        history = history_of(sampling, past, Draft.empty(1), 3)
        logits = torch.tensor([[target_law(context)]], dtype=torch.float64).log()
        return sampling.probs(logits, history)[0, 0].tolist()

    step_laws = first_steps(ToyTarget(target_law, 3), ToyDrafter(draft_law), 2, rule, sampling)
    got: dict = {}
    for (tokens, _), weight in step_laws([PROMPT], 3)[0].items():
        rest = sequence_law(transformed, (*PROMPT, *tokens), 3 - len(tokens))
        for more, share in rest.items():
            got[*tokens, *more] = got.get((*tokens, *more), 0.0) + weight * share
    assert_same_law(got, sequence_law(transformed, PROMPT, 3))


def tokens_in_first_step(target, drafter, k, rule) -> float:
    return mean_tokens(first_steps(target, drafter, k, rule)([PROMPT], k + 1)[0])


def mean_tokens(law: dict) -> float:
    return sum(weight * len(tokens) for (tokens, _), weight in law.items())


def leviathan_tokens(target_law, draft_law, k) -> float:
    """1 + sum over draws of the products of sum min(p, q) along the target's own accepted paths."""

    def survive(context, depth):
        if depth == k:
            return 0.0
        both = [min(p, q) for p, q in zip(target_law(context), draft_law(context), strict=True)]
        return sum(m * (1 + survive((*context, x), depth + 1)) for x, m in enumerate(both) if m)

    return 1 + survive(PROMPT, 0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_expected_tokens_are_what_theory_says(k):
    target_law, draft_law = pair_of_laws("dense", 21, 3)
    target, drafter = ToyTarget(target_law, 3), ToyDrafter(draft_law)
    by_ratio = tokens_in_first_step(target, drafter, k, "reject")
    assert by_ratio == pytest.approx(leviathan_tokens(target_law, draft_law, k), abs=1e-12)
    by_block = tokens_in_first_step(target, drafter, k, "block")
    assert by_block >= by_ratio - 1e-12
    if k == 1:
        assert by_block == pytest.approx(by_ratio, abs=1e-12)
    fixed = ToyDrafter(draft_law, argmax=True, tell_law=False)
    matched = tokens_in_first_step(target, fixed, k, "match")
    for rule in ("reject", "block"):  # for a one-hot draft all three accept alike
        assert tokens_in_first_step(target, fixed, k, rule) == pytest.approx(matched, abs=1e-12)


def test_block_verification_accepts_more_than_the_token_rule():
    target_law, draft_law = pair_of_laws("dense", 4, 3)
    target, drafter = ToyTarget(target_law, 3), ToyDrafter(draft_law)
    gain = [tokens_in_first_step(target, drafter, 3, rule) for rule in ("block", "reject")]
    assert gain[0] > gain[1] + 1e-3


def faults(rule, seeds=range(4), k=3) -> tuple[float, float]:
    """Worst total variation from the target's law, and worst shortfall in expected tokens."""
    name = rule if isinstance(rule, str) else rule.__name__
    apart, short = 0.0, 0.0
    for seed in seeds:
        target_law, draft_law = pair_of_laws("dense", 100 * seed, 3)
        drafter = ToyDrafter(draft_law, argmax=name in NEED_ARGMAX_DRAFT)
        target = ToyTarget(target_law, 3)
        step_laws = first_steps(target, drafter, k, rule)
        got = composed_law(step_laws, PROMPT, k + 1)
        apart = max(apart, total_variation(got, sequence_law(target_law, PROMPT, k + 1)))
        if not drafter.argmax and name != "fresh_draw_after_mismatch":  # that one matches
            due = leviathan_tokens(target_law, draft_law, k)
            short = max(short, due - mean_tokens(step_laws([PROMPT], k + 1)[0]))
    return apart, short


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_every_broken_rule_is_caught(name):
    apart, short = faults(BROKEN_RULES[name], seeds=range(2), k=2)
    print(f"{name}: total variation {apart:.4f}, tokens short {short:.4f}")
    assert apart > 1e-4 or short > 1e-2


@pytest.mark.parametrize("rule", ["reject", "block"])
def test_the_same_check_passes_the_right_rules(rule):
    apart, short = faults(rule, seeds=range(2), k=2)
    assert apart < 1e-12
    assert short < 1e-12


class ReusedCoins:
    """Block verification's coins keyed by absolute position: each may decide two steps."""

    def __init__(self, randomness) -> None:
        self._randomness = randomness
        self.draw = randomness.draw

    def coin(self, probability, position, lane, offset=0):
        return self._randomness.coin(probability, position + offset, lane, 0)


def test_whole_generations_show_a_coin_that_decides_twice():
    """Composing fresh steps cannot see it; the enumeration of whole runs can."""
    from specdec_lab.decoding.verify import block

    def reusing(context, draft, scores, sampling, randomness):
        return block(context, draft, scores, sampling, ReusedCoins(randomness))

    target_law, draft_law = random_law(1, 2), random_law(2, 2)
    target = ToyTarget(target_law, 2)
    laws = []
    for rule in (reusing, "block"):
        law = whole_law(target, ToyDrafter(draft_law), 2, rule, 4)
        laws.append(total_variation(law, sequence_law(target_law, PROMPT, 4)))
    assert laws[0] > 1e-4
    assert laws[1] < 1e-12
