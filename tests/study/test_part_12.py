"""The figures of notebook 12, and the checks of its exercises."""

from itertools import product
from math import prod

from specdec_lab.study.exercises import (
    check_block_chain,
    check_fixed_tree,
    check_seen,
    check_traversal_weight,
)
from specdec_lab.study.figures import FIGURES, part_12
from specdec_lab.study.figures.tree_layout import tree_layout
from specdec_lab.study.traversal import right_weight

TOKENS = {name: [2.0, 3.25] for name in part_12.SCHEMES}
DATA = {
    "12_tree": {
        "words": ["the", "cat", "dog", "sat"],
        "parents": [-1, -1, 0],
        "accepted": [0],
        "first_position": 7,
        "seen": [[i >= j for j in range(4)] for i in range(4)],
    },
    "12_explore": {
        "draft": "good",
        "temperature": 0.7,
        "nodes": 8,
        "temperatures": [0.0, 0.7],
        "tokens": TOKENS,
    },
}


def test_the_panel_is_told_in_words_with_its_numbers():
    told = part_12.describe_explore(DATA["12_explore"])
    assert "temperature = 0.7" in told
    assert told.count("3.25") == len(part_12.SCHEMES)


def test_the_price_of_rows_has_whiskers_where_its_rounds_are_known():
    curve = {"label": "there", "cost": {"1": 1.0, "5": 1.5}}
    known = curve | {"label": "here", "cost_rounds": {"1": [1.0, 1.0], "5": [1.25, 2.0]}}
    line = {"label": "tree", "kind": "tree", "free": False, "speedup": [1.0, 1.5]}
    data = {"curves": [curve, known], "nodes": [2, 4], "draft_cost": 0.1, "lines": [line]}
    left, _ = part_12.price(data).axes
    ends = [whisker.get_segments()[0].tolist() for whisker in left.collections]
    assert ends == [[[1, 1.0], [1, 1.0]], [[5, 1.25], [5, 2.0]]]


def test_the_mask_is_drawn_square_by_square():
    _, right = FIGURES["12_tree"](DATA["12_tree"]).axes
    assert len(right.patches) == 16


def test_a_tree_is_laid_out_with_parents_amid_their_children():
    assert tree_layout([-1, -1, 0, 0, 2]) == ([0, 0, 1, 1, 2], [0.5, 2.0, 0.0, 1.0, 0.0], 3)


def test_exercise_1_wants_the_ancestors():
    def seen(parents, node):
        return {node} | (seen(parents, parents[node]) if parents[node] >= 0 else set())

    assert check_seen(seen).startswith("Right")
    assert "sibling" in check_seen(lambda parents, node: set(range(node + 1)))
    assert check_seen(lambda parents, node: None).startswith("Not yet")


def test_exercise_2_wants_the_chances_of_paths():
    def worth(parents, probs):
        paths = []
        for parent, p in zip(parents, probs, strict=True):
            paths.append(p * (paths[parent] if parent >= 0 else 1))
        return sum(paths)

    assert check_fixed_tree(worth).startswith("Right")
    assert "chain" in check_fixed_tree(lambda parents, probs: sum(probs))
    assert check_fixed_tree(lambda parents, probs: None).startswith("Not yet")


def test_exercise_3_wants_the_weights_of_prefixes():
    def accepted(p, q, k, least=min):
        total, weight = 0.0, {(): 1.0}
        for length in range(1, k + 1):
            weight = {
                text: least(weight[text[:-1]] * p[text[-1]], prod(q[x] for x in text))
                for text in product(range(len(p)), repeat=length)
            }
            total += sum(weight.values())
        return total

    assert check_block_chain(accepted).startswith("Right")
    by_token = sum(map(min, [1 / 3, 2 / 3], [2 / 3, 1 / 3]))
    wrong = check_block_chain(lambda p, q, k: by_token + (k > 1) * by_token**2)
    assert "k = 2" in wrong
    assert check_block_chain(lambda p, q, k: None).startswith("Not yet")


def test_exercise_4_runs_the_rule_over_every_branch():
    assert check_traversal_weight(right_weight).startswith("Right")
    assert "off by" in check_traversal_weight(lambda s, a, q: s / (1 - q) if q < 1 else 1.0)
    assert check_traversal_weight(lambda s, a, q: None).startswith("Not yet")
