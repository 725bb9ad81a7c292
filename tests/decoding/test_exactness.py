"""The gate: the production loop under the enumerating randomness has the target's law, to 1e-12.

    pytest tests/decoding/test_exactness.py

One step from every reachable context is enumerated, branch by branch, and the laws are composed;
for the smallest vocabularies the whole of `generate` is enumerated as well. The same check must
catch every broken rule.
"""

from functools import cache

import pytest
import torch

from specdec_lab.decoding.decode import collect, run
from specdec_lab.decoding.randomness import EnumeratingRandomness, enumerate_law
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.study.broken_rules import BROKEN_RULES, NEED_ARGMAX_DRAFT
from toys import (
    SHAPES,
    ToyDrafter,
    ToyTarget,
    pair_of_laws,
    random_law,
    sequence_law,
    total_variation,
)

PLAIN = Sampling(temperature=1.0)
PROMPT = (0, 1)


def request(target, prompt, drafter, k, rule, max_new, sampling=PLAIN) -> Request:
    return Request.checked(target, [list(prompt)], drafter, k, sampling, rule, max_new, None)


def one_step(target, drafter, k, rule, sampling=PLAIN):
    """Law of the first step from any context with a given budget, enumerated once each."""

    @cache
    def law(context: tuple[int, ...], budget: int) -> dict:
        asked = request(target, context, drafter, k, rule, budget, sampling)

        def first_step(randomness: EnumeratingRandomness) -> tuple:
            step = next(run(target, asked, randomness))
            return tuple(step.rows[0].tokens), step.finish_reasons[0] is not None

        return enumerate_law(first_step)

    return law


def composed_law(step_law, prompt: tuple[int, ...], max_new: int) -> dict:
    """Law of whole outputs when each step starts afresh from the context that the last one left."""
    finished: dict = {}
    growing = {(): 1.0}
    while growing:
        output, weight = growing.popitem()
        for (tokens, ended), share in step_law((*prompt, *output), max_new - len(output)).items():
            bin_ = finished if ended else growing
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
    step_law = one_step(ToyTarget(target_law, 3, eos), drafter, k, rule)
    got = composed_law(step_law, PROMPT, k + 1)
    assert_same_law(got, sequence_law(target_law, PROMPT, k + 1, eos))


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("vocab_size", "k", "max_new"), [(2, 2, 4), (3, 1, 3)])
def test_whole_generations_have_the_targets_law(shape, rule, vocab_size, k, max_new):
    target_law, draft_law = pair_of_laws(shape, 7, vocab_size)
    target = ToyTarget(target_law, vocab_size)
    drafter = ToyDrafter(draft_law, tell_law=rule != "match", argmax=rule == "match")
    asked = request(target, PROMPT, drafter, k, rule, max_new)
    got = enumerate_law(lambda chance: tuple(collect(1, run(target, asked, chance)).tokens[0]))
    assert_same_law(got, sequence_law(target_law, PROMPT, max_new))


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_matching_a_sampled_draft_is_exact_as_well(rule):
    target_law, draft_law = pair_of_laws("dense", 5, 3)
    step_law = one_step(ToyTarget(target_law, 3), ToyDrafter(draft_law), 2, rule)
    assert_same_law(composed_law(step_law, PROMPT, 3), sequence_law(target_law, PROMPT, 3))


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

    step_law = one_step(ToyTarget(target_law, 3), ToyDrafter(draft_law), 2, rule, sampling)
    got: dict = {}
    for (tokens, _), weight in step_law(PROMPT, 3).items():
        rest = sequence_law(transformed, (*PROMPT, *tokens), 3 - len(tokens))
        for more, share in rest.items():
            got[*tokens, *more] = got.get((*tokens, *more), 0.0) + weight * share
    assert_same_law(got, sequence_law(transformed, PROMPT, 3))


def tokens_in_first_step(target, drafter, k, rule) -> float:
    return mean_tokens(one_step(target, drafter, k, rule)(PROMPT, k + 1))


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
        step_law = one_step(target, drafter, k, rule)
        got = composed_law(step_law, PROMPT, k + 1)
        apart = max(apart, total_variation(got, sequence_law(target_law, PROMPT, k + 1)))
        if not drafter.argmax and name != "fresh_draw_after_mismatch":  # that one matches
            due = leviathan_tokens(target_law, draft_law, k)
            short = max(short, due - mean_tokens(step_law(PROMPT, k + 1)))
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
        asked = request(target, PROMPT, ToyDrafter(draft_law), 2, rule, 4)
        law = enumerate_law(lambda r, a=asked: tuple(collect(1, run(target, a, r)).tokens[0]))
        laws.append(total_variation(law, sequence_law(target_law, PROMPT, 4)))
    assert laws[0] > 1e-4
    assert laws[1] < 1e-12
