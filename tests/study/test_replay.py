"""The replay of one plain text leaves the very trace that real decoding leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study.replay import replay
from toys import random_target

TARGET = random_target(seed=3, vocab_size=6, eos_ids=(5,))  # few tokens: it repeats itself


def steps(trace):
    return [(s.drafted, s.tokens, s.num_accepted) for s in trace.rows[0]]


@settings(max_examples=25, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 4), min_size=1, max_size=20),
    k=st.integers(1, 9),
    budget=st.integers(1, 24),
    min_n=st.integers(1, 3),
    occurrence=st.sampled_from(["last", "first", "most_frequent"]),
)
def test_a_replay_equals_decoding_step_by_step(prompt, k, budget, min_n, occurrence):
    proposer = NGram(min_n=min_n, occurrence=occurrence)
    plain = generate(TARGET, [prompt], max_new_tokens=budget)
    real = generate(TARGET, [prompt], proposer, k=k, max_new_tokens=budget).trace
    told = replay(proposer, prompt, plain.tokens[0], k, budget, TARGET.eos_ids)
    assert steps(told) == steps(real)
    assert told.num_forwards == real.num_forwards


@pytest.mark.parametrize(("k", "forwards"), [(0, 6), (1, 4), (2, 3), (5, 2)])
def test_by_hand(k, forwards):
    """1 2 3 4 5 6 | 1 2 and then 3 4 5 6 9 9: four tokens can be copied."""
    trace = replay(NGram(), [1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6, 9, 9], k)
    assert trace.num_tokens == 6
    assert trace.num_forwards == forwards


def test_what_is_drafted_behind_an_end_token_was_never_drafted():
    trace = replay(NGram(), [1, 2, 3, 0, 7, 7, 1, 2], [3, 0], 4, 20, eos_ids=(0,))
    assert steps(trace) == [([3, 0], [3, 0], 2)]
    refused = replay(NGram(), [1, 2, 0, 7, 7, 1, 2], [5], 4, 20, eos_ids=(0,))
    assert steps(refused) == [([0], [5], 0)]
