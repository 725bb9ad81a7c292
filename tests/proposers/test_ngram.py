"""The n-gram proposer against a naive reference, and the cases that bit other programs.

pytest tests/proposers/test_ngram.py
"""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.ngram import MAX_N, MIN_N, OCCURRENCES, NGram

PAD = 1  # a token of the alphabet on purpose: pads must be ignored by place, not by value


def reference(row: list[int], k: int, min_n: int, max_n: int, occurrence: str) -> list[int]:
    """The same rule for one row, in plain lists: what NGram's docstring says, word by word."""
    for n in range(max_n, min_n - 1, -1):
        tail = row[-n:]
        places = [end for end in range(n - 1, len(row) - 1) if row[end - n + 1 : end + 1] == tail]
        if not places:
            continue
        following = Counter(row[end + 1] for end in places)
        chosen = {
            "first": places[0],
            "last": places[-1],
            "most_frequent": max(places, key=lambda end: (following[row[end + 1]], end)),
        }[occurrence]
        return row[chosen + 1 : chosen + 1 + k]
    return []


def context_of(rows: list[list[int]], spare: int = 0) -> Context:
    """Left-aligned rows of unequal length, padded with a real token."""
    width = max(map(len, rows)) + spare
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])  # (B, L)
    return Context(tokens, lengths, lengths)


def propose(proposer: NGram, context: Context, k: int) -> Draft:
    """The call of the decoding loop; n-gram looks at neither sampling nor randomness."""
    return proposer.propose(context, k, Sampling(), None)


def proposals(proposer: NGram, rows: list[list[int]], k: int, spare: int = 0) -> list[list[int]]:
    """What is proposed for each row, as lists."""
    draft = propose(proposer, context_of(rows, spare), k)
    assert draft.tokens.shape == (len(rows), k)
    assert draft.parents is None
    assert draft.probs is None
    pairs = zip(draft.tokens.tolist(), draft.count.tolist(), strict=True)
    return [tokens[:count] for tokens, count in pairs]


@given(data=st.data(), alphabet=st.integers(1, 4), occurrence=st.sampled_from(OCCURRENCES))
def test_equals_the_naive_reference_on_random_histories(data, alphabet, occurrence):
    row = st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=24)
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    min_n = data.draw(st.integers(1, 4))
    max_n = data.draw(st.integers(min_n, 6))
    k = data.draw(st.integers(0, 6))
    found = proposals(NGram(min_n, max_n, occurrence), rows, k, spare=data.draw(st.integers(0, 3)))
    assert found == [reference(row, k, min_n, max_n, occurrence) for row in rows]


@pytest.mark.parametrize("occurrence", OCCURRENCES)
def test_equals_the_naive_reference_on_long_rows(occurrence):
    generator = torch.Generator().manual_seed(0)
    lengths = [2000, 1, 1999, 37, 2, 500]
    rows = [torch.randint(0, 6, (n,), generator=generator).tolist() for n in lengths]
    found = proposals(NGram(1, 5, occurrence), rows, k=8)
    assert found == [reference(row, 8, 1, 5, occurrence) for row in rows]


def test_each_occurrence_by_hand():
    row = [7, 1, 5, 0, 7, 2, 5, 0, 7, 1, 6, 0, 7, 3, 4, 7]  # after 7: 1, 2, 1, 3
    follow = {name: proposals(NGram(1, 1, name), [row], k=2)[0] for name in OCCURRENCES}
    assert follow == {"first": [1, 5], "last": [3, 4], "most_frequent": [1, 6]}


def test_the_longest_n_wins_over_a_later_place():
    row = [1, 2, 3, 9, 8, 3, 7, 1, 2, 3]
    assert proposals(NGram(1, 3), [row], k=1) == [[9]]
    assert proposals(NGram(1, 1), [row], k=1) == [[7]]


def test_a_repetition_leaves_what_exists():
    row = [4, 5, 6, 6, 6, 6, 6]
    assert proposals(NGram(1, 2, "last"), [row], k=3) == [[6]]
    assert proposals(NGram(1, 2, "first"), [row], k=3) == [[6, 6, 6]]


def test_bigram_case_13_and_end_tokens_are_ordinary():
    row = [3, 8, 4, 9, 2, 8, 4]
    assert proposals(NGram(2, 2), [row], k=3) == [[9, 2, 8]]


@pytest.mark.parametrize("row", [[5], [5, 6], [5, 6, 7, 8]])
def test_no_place_is_an_empty_proposal_case_15(row):
    draft = propose(NGram(1, 3), context_of([row]), k=4)
    assert draft.count.tolist() == [0]


def test_count_is_zero_only_where_nothing_matches_case_23():
    rows = [[1, 2, 3], [4, 5, 6, 4], [2, 2]]
    assert proposals(NGram(1, 3), rows, k=2) == [[], [5, 6], [2]]


def test_permuting_the_rows_permutes_the_proposals_case_23():
    rows = [[1, 2, 1, 2, 1], [3, 3], [1, 2, 3, 4, 1, 2], [9]]
    order = [2, 0, 3, 1]
    found = proposals(NGram(), rows, k=4)
    assert proposals(NGram(), [rows[i] for i in order], k=4) == [found[i] for i in order]


def test_whatever_lies_beyond_a_row_changes_nothing():
    context = context_of([[3, 1, 2, 3, 1], [1, 2, 1]], spare=3)
    other = context.tokens.clone()
    other[0, 5:], other[1, 3:] = 3, 1
    for occurrence in OCCURRENCES:
        drafts = [
            propose(NGram(1, 3, occurrence), Context(tokens, context.lengths, context.lengths), 4)
            for tokens in (context.tokens, other)
        ]
        assert torch.equal(drafts[0].tokens, drafts[1].tokens)
        assert torch.equal(drafts[0].count, drafts[1].count)


@pytest.mark.parametrize("occurrence", OCCURRENCES)
@pytest.mark.parametrize("width", [1, 2, 9])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_reads_nothing_on_the_host_case_20(occurrence, width, k):
    tokens = torch.zeros(3, width, dtype=torch.long, device="meta")
    lengths = torch.ones(3, dtype=torch.long, device="meta")
    draft = propose(NGram(1, 3, occurrence), Context(tokens, lengths, lengths), k)
    assert draft.tokens.shape == (3, k)
    assert draft.count.shape == (3,)
    assert draft.tokens.dtype == draft.count.dtype == torch.long
    assert draft.tokens.device.type == draft.count.device.type == "meta"


@pytest.mark.gpu
@pytest.mark.parametrize("occurrence", OCCURRENCES)
def test_the_proposal_lies_on_the_device_of_the_context_case_20(occurrence):
    context = context_of([[3, 1, 2, 3, 1], [1, 2, 1]])
    there = Context(*(part.cuda() for part in (context.tokens, context.lengths, context.lengths)))
    here, away = (propose(NGram(1, 3, occurrence), c, 4) for c in (context, there))
    assert away.tokens.is_cuda
    assert torch.equal(away.tokens.cpu(), here.tokens)
    assert torch.equal(away.count.cpu(), here.count)


def test_a_bound_left_out_follows_the_other():
    assert (NGram().min_n, NGram().max_n) == (MIN_N, MAX_N)
    assert NGram(min_n=MAX_N + 2).max_n == MAX_N + 2
    assert NGram(max_n=1).min_n == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_n": 0}, "min_n must be a whole number, 1 or more, not 0"),
        ({"max_n": 2.0}, "max_n must be a whole number, 1 or more, not 2.0"),
        ({"min_n": True}, "min_n must be a whole number, 1 or more, not True"),
        ({"min_n": 3, "max_n": 2}, "min_n must not be above max_n, but 3 is above 2"),
        ({"occurrence": "any"}, "occurrence must be one of last, first, most_frequent, not 'any'"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be a whole number"),
    ],
)
def test_bad_options_get_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        NGram(**options)
