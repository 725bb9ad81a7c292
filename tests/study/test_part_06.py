"""The figures of notebook 06, and the checks of its exercises."""

from collections import Counter
from math import floor

from specdec_lab.study.exercises import check_draft_budget, check_vote
from specdec_lab.study.figures import FIGURES
from specdec_lab.study.figures.part_06 import describe_against_ngram

NODES = [
    {"word": "sat", "parent": -1, "chance": 0.75, "count": 3, "drafted": True},
    {"word": "down", "parent": 0, "chance": 0.5, "count": 2, "drafted": True},
    {"word": "ran", "parent": -1, "chance": 0.25, "count": 1, "drafted": False},
]
COUNTS = {
    "ngram": {"forwards": 6, "drafted": 9, "accepted": 4},
    "suffix": {"forwards": 7, "drafted": 4, "accepted": 3},
}
DATA = {
    "06_tree": {"root": "the cat", "nodes": NODES},
    "06_depth": {"k": 4, "ngram": [[4, 1], [0, 0], [4, 4]], "suffix": [[1, 1], [2, 0]]},
    "06_requests": {
        "requests": ["one", "two"],
        "series": [
            {"method": "ngram", "label": "n-gram", "shared": False, "tau": [1.1, 1.2]},
            {"method": "suffix", "label": "remembers", "shared": True, "tau": [1.1, 2.2]},
        ],
    },
    "06_against_ngram": {"k": 8, "domains": {"chat": {"tokens": 10, **COUNTS}}},
}


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_tree_names_every_node_with_its_count_and_chance():
    shown = texts(FIGURES["06_tree"](DATA["06_tree"]))
    assert {"the cat", "sat", "down", "ran", "3 × : 0.75", "2 × : 0.50", "1 × : 0.25"} <= set(shown)


def test_depth_counts_forwards_and_tokens():
    axes = FIGURES["06_depth"](DATA["06_depth"]).axes
    titles = [panel.get_title(loc="left") for panel in axes]
    assert titles == [
        "n-gram: 3 forwards, 8 drafted, 5 accepted",
        "suffix: 2 forwards, 3 drafted, 1 accepted",
    ]
    assert [len(panel.patches) for panel in axes] == [8, 3]


def test_requests_name_every_line():
    assert {"n-gram", "remembers", "plain decoding"} <= set(
        texts(FIGURES["06_requests"](DATA["06_requests"]))
    )


def test_against_ngram_is_per_token_and_described_in_words():
    shown = texts(FIGURES["06_against_ngram"](DATA["06_against_ngram"]))
    assert {"0.60", "0.70", "0.90", "0.40"} <= set(shown)
    left, right = FIGURES["06_against_ngram"](DATA["06_against_ngram"]).axes
    assert left.get_title(loc="left") == "Suffix: +17 % forwards"
    assert right.get_title(loc="left") == "and -56 % drafted tokens"
    told = describe_against_ngram(DATA["06_against_ngram"])
    assert told == (
        "k = 8. chat (10 tokens): n-gram 6 forwards, 9 drafted; suffix 7 forwards, 4 drafted."
    )


def test_draft_budget():
    def right(match, k, factor, max_depth):
        return min(k, floor(match * factor), max_depth - match)

    assert check_draft_budget(right).startswith("Right")
    assert check_draft_budget(lambda *case: None) == "Not yet: return a number of tokens."
    wrong = {
        "trusted": lambda m, k, f, d: k,
        "round down": lambda m, k, f, d: m * f,
        "every proposer": lambda m, k, f, d: floor(m * f),
        "share the depth": lambda m, k, f, d: min(k, floor(m * f)),
    }
    for story, budget in wrong.items():
        assert story in check_draft_budget(budget)


def test_vote():
    def right(followers):
        (token, count), *_ = Counter(followers).most_common(1)
        return token, count / len(followers)

    assert check_vote(right).startswith("Right")
    assert "'b' with 0.667" in check_vote(lambda followers: (followers[0], 1.0))
    assert "'b' with 0.667" in check_vote(lambda followers: (followers[-1], 1.0))
    assert check_vote(lambda followers: None).startswith("Not yet")
