"""The gate for trees: whole generations under the enumerating randomness, to 1e-12.

    pytest tests/decoding/test_tree_exactness.py

Every branch is a row of one batch, so rows with different trees are judged together. Steps follow
each other under one source of chance: a uniform number used twice would show.
"""

import pytest

from toys import (
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
        ("match", "apart", False, UNBALANCED[:3]),
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
