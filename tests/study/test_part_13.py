"""The figures of notebook 13, and the checks of its exercises."""

from made_speeds import made_speeds
from specdec_lab.study.exercises import check_chain_keys, check_pairs, check_rerank
from specdec_lab.study.figures import FIGURES

BRANCH = {"word": "am", "chance": 0.4, "after": [["a", 0.5], ["the", 0.2]]}
COLUMN = {"feature": "I", "token": "am", "guess": "a", "truth": "a", "own": False}
CHANCES = {"greedy": [0.4, 0.3], "sampled": [0.5, 0.4]}
WAYS = ("EAGLE-1, chain", "EAGLE-2, tree", "EAGLE-3, chain", "EAGLE-3, tree")
DATA = {
    "13_uncertainty": {
        "root": "I",
        "branches": [BRANCH, BRANCH | {"word": "always"}],
        "places": [{"word": "I", "open": 0.5}, {"word": "sea", "open": 0.25}],
    },
    "13_pairs": {"columns": [COLUMN, COLUMN | {"guess": "the", "own": True}]},
    "13_drift": {
        "lines": {
            "one step": {"error": [0.5, 0.75], "right": [0.3, 0.1]},
            "EAGLE-3": {"error": None, "right": [0.3, 0.2]},
        }
    },
    "13_mask": {"steps": 2, "places": 2, "seen": [[1, 0, 1, 0]] * 4},
    "13_shipped": {
        "alpha": {"eagle_1": [0.4, 0.3], "eagle_3": [0.45, 0.35]},
        "cap": 0.9,
        "temperatures": [0.5, 1.0],
        "chances": {"eagle_1": CHANCES, "eagle_3": CHANCES},
    },
    "13_chains_and_trees": made_speeds(*WAYS),
}


def test_titles_say_what_the_numbers_say():
    def title(slug):
        figure = FIGURES[slug](DATA[slug])
        return figure.get_suptitle() or figure.axes[0].get_title(loc="left")

    assert "38%" in title("13_uncertainty")
    assert "1 of 2 guessed" in title("13_pairs")
    assert "token 2: one step 0.10, EAGLE-3 0.20" in title("13_drift")
    assert "EAGLE-1 0.40, EAGLE-3 0.45; cap 0.90" in title("13_shipped")
    assert "EAGLE-1, chain on chat, 2.50" in title("13_chains_and_trees")


def test_the_mask_is_drawn_square_by_square():
    (axes,) = FIGURES["13_mask"](DATA["13_mask"]).axes
    assert len(axes.patches) == 16


def test_a_head_without_features_is_drawn_on_the_right_only():
    left, right = FIGURES["13_drift"](DATA["13_drift"]).axes
    assert len(left.lines) == 1
    assert len(right.lines) == 2


def test_exercise_1_wants_the_shifted_tokens():
    assert check_pairs(lambda tokens: list(enumerate(tokens[1:]))).startswith("Right")
    assert "'am'" in check_pairs(lambda tokens: list(enumerate(tokens)))
    assert check_pairs(lambda tokens: None).startswith("Not yet")


def test_exercise_2_wants_the_diagonals():
    def keys(step, place, chain=True):
        own = {(s, place) for s in range(1, step + 1)} if chain else set()
        return {(0, other) for other in range(place + 1)} | own

    assert check_chain_keys(keys).startswith("Right")
    assert "own chain" in check_chain_keys(lambda step, place: keys(step, place, chain=False))
    assert check_chain_keys(lambda step, place: None).startswith("Not yet")


def test_exercise_3_wants_products_along_paths():
    def rerank(parents, probs, size, along=True):
        scores = []
        for parent, prob in zip(parents, probs, strict=True):
            scores.append(prob * (scores[parent] if along and parent >= 0 else 1))
        return sorted(range(len(scores)), key=lambda node: -scores[node])[:size]

    assert check_rerank(rerank).startswith("Right")
    assert "path" in check_rerank(lambda *args: rerank(*args, along=False))
    assert check_rerank(lambda *args: None).startswith("Not yet")
