"""The gate for trees: whole generations under the enumerating randomness, to 1e-12.

    pytest tests/decoding/test_tree_exactness.py

Every branch is a row of one batch, so rows with different trees are judged together. Steps follow
each other under one source of chance: a uniform number used twice would show.
"""

import pytest

from specdec_lab.decoding.decode import run
from specdec_lab.decoding.randomness import enumerate_laws
from specdec_lab.decoding.request import Request
from specdec_lab.study import exact_laws
from specdec_lab.study.broken_rules import BROKEN_TREE_RULES
from specdec_lab.study.exact_laws import (
    completed,
    step_law,
    tokens_per_step,
    total_variation,
    toy_law,
    tree_step_law,
)
from specdec_lab.study.traversal import traversal
from toys import (
    PLAIN,
    PROMPT,
    SHAPES,
    ToyTarget,
    ToyTree,
    pair_of_laws,
    random_law,
    sequence_law,
    whole_law,
)

CHAIN = (-1, 0)
STAR = (-1, -1, -1)
BUSHY = (-1, -1, 0, 0, 1)
UNBALANCED = (-1, 0, 0, -1, 1)
TREES = {"chain": [CHAIN], "star": [STAR], "bushy": [BUSHY], "mixed": [CHAIN, STAR, UNBALANCED]}
HOW = {"match": "top", "reject": "apart"}


def assert_same_law(got: dict, want: dict) -> None:
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    worst = max(abs(got.get(x, 0.0) - want.get(x, 0.0)) for x in got.keys() | want.keys())
    assert worst < 1e-12, f"largest error {worst}"


def generated(target_law, drafter, rule, max_new, eos=()) -> dict:
    return whole_law(ToyTarget(target_law, 3, eos), drafter, 5, rule, max_new)


@pytest.mark.parametrize("eos", [(), (2,)], ids=["length_cut", "eos"])
@pytest.mark.parametrize("rule", HOW)
@pytest.mark.parametrize("shapes", TREES.values(), ids=TREES)
def test_whole_generations_have_the_targets_law(shapes, rule, eos):
    target_law, draft_law = pair_of_laws("dense", 5, 3)
    drafter = ToyTree(draft_law, shapes, HOW[rule], rule == "reject", limit=len(PROMPT) + 3)
    got = generated(target_law, drafter, rule, 3, eos)
    assert_same_law(got, sequence_law(target_law, PROMPT, 3, eos))


@pytest.mark.parametrize("rule", HOW)
@pytest.mark.parametrize("law", SHAPES[1:])
def test_laws_with_holes_over_several_steps(law, rule):
    """Children run out where the draft has few tokens; the target may refuse them all."""
    target_law, draft_law = pair_of_laws(law, 7, 3)
    max_new = 4 if law in ("sparse", "disjoint", "one_hot") else 3
    drafter = ToyTree(draft_law, [BUSHY], HOW[rule], rule == "reject", len(PROMPT) + max_new)
    got = generated(target_law, drafter, rule, max_new)
    assert_same_law(got, sequence_law(target_law, PROMPT, max_new))


@pytest.mark.parametrize(
    ("rule", "how", "tell_law", "shape"),
    [
        ("reject", "independent", True, BUSHY[:3]),  # siblings may be equal: multi-step rejection
        ("reject", "top", False, BUSHY),  # one-hot laws: accept with p(x), else zero it
        ("match", "apart", False, BUSHY[:2]),
    ],
)
def test_other_pairs_of_drafting_and_judging(rule, how, tell_law, shape):
    target_law, draft_law = pair_of_laws("dense", 3, 3)
    drafter = ToyTree(draft_law, [shape], how, tell_law, len(PROMPT) + 3)
    got = generated(target_law, drafter, rule, 3)
    assert_same_law(got, sequence_law(target_law, PROMPT, 3))


def test_the_loop_cuts_what_is_too_deep():
    """The drafter knows no limit here: the door cuts, whatever was drawn."""
    target_law, draft_law = random_law(1, 3), random_law(2, 3, zeros=1)
    got = generated(target_law, ToyTree(draft_law, [(-1, -1, 1, 2)]), "reject", 2)
    assert_same_law(got, sequence_law(target_law, PROMPT, 2))


def apart_from_target(rule, branching, seed=0) -> float:
    """Total variation of one step, completed by the target, from the target's law."""
    target_law, draft_law = toy_law(seed), toy_law(seed + 1)
    length = len(branching) + 1
    outcomes = tree_step_law(rule, target_law, draft_law, branching)
    whole = completed(outcomes, target_law, length)
    return total_variation(whole, exact_laws.sequence_law(target_law, length))


@pytest.mark.parametrize(
    "rule", ["match", "reject", traversal], ids=["match", "reject", "traversal"]
)
def test_a_sampled_tree_has_the_targets_law(rule):
    assert apart_from_target(rule, (2, 1) if rule == "reject" else (2,)) < 1e-12


def test_traversal_is_exact_two_levels_deep():
    assert apart_from_target(traversal, (2, 2)) < 1e-12


@pytest.mark.parametrize("name", BROKEN_TREE_RULES)
def test_every_broken_tree_rule_is_caught(name):
    apart = max(apart_from_target(BROKEN_TREE_RULES[name], (2, 1), seed) for seed in (0, 100))
    print(f"{name}: total variation {apart:.4f}")
    assert apart > 1e-2


def test_siblings_sorted_by_rank_are_no_fault_in_a_chain():
    assert apart_from_target(BROKEN_TREE_RULES["siblings_by_rank"], (1, 1)) < 1e-12


def test_expected_tokens_are_ordered_as_theory_says():
    target_law, draft_law = toy_law(3), toy_law(4)

    def tokens(rule, branching) -> float:
        return tokens_per_step(tree_step_law(rule, target_law, draft_law, branching))

    assert tokens("reject", (3,)) == pytest.approx(2, abs=1e-12)  # every token is a child
    chain = tokens("reject", (1, 1))
    assert tokens("reject", (2, 1)) > chain + 1e-3
    assert tokens(traversal, (2, 1)) >= tokens("reject", (2, 1)) - 1e-12
    by_block = tokens_per_step(step_law("block", target_law, draft_law, 2))
    assert tokens(traversal, (1, 1)) == pytest.approx(by_block, abs=1e-12)
    assert chain == pytest.approx(tokens_per_step(step_law("reject", target_law, draft_law, 2)))


def test_without_replacement_accepts_more_than_with_it():
    target_law, draft_law = pair_of_laws("dense", 3, 3)
    mean = {}
    for how in ("apart", "independent"):
        drafter = ToyTree(draft_law, [(-1, -1)], how, limit=len(PROMPT) + 2)
        steps = first_step(ToyTarget(target_law, 3), drafter, 2)
        mean[how] = sum(weight * len(tokens) for tokens, weight in steps.items())
    assert mean["apart"] > mean["independent"] + 1e-3


def first_step(target, drafter, max_new) -> dict:
    """Law of what the first step writes behind PROMPT, judged by `reject`."""

    def write(randomness, which):
        prompts = [PROMPT] * len(which)
        asked = Request.checked(target, prompts, drafter, 5, PLAIN, "reject", max_new, None)
        return [tuple(row.tokens) for row in next(run(target, asked, randomness)).rows]

    return enumerate_laws(write, 1)[0]
