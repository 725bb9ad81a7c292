"""Counters and ratios, each against numbers made by hand (CASES 30-33).

pytest tests/decoding/test_trace.py
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import RowStep, Step
from specdec_lab.decoding.trace import SUMMARY, Trace, repeated_ngram_share
from toys import Scripted, ToyTarget


def row_step(num_drafted: int, num_accepted: int, at: float = 0.0) -> RowStep:
    """A step that drafted, accepted, and wrote one more token."""
    return RowStep([7] * num_drafted, [7] * (num_accepted + 1), num_accepted, at)


def trace_of(*pairs: tuple[int, int]) -> Trace:
    return Trace([[row_step(drafted, accepted) for drafted, accepted in pairs]])


@pytest.mark.parametrize("accepted", range(5))
def test_30_rate_and_tokens_per_pass_are_two_quantities(accepted):
    trace = trace_of((4, accepted))
    assert trace.draft_acceptance_rate == accepted / 4  # never (a + 1) / (k + 1)
    assert trace.tau == accepted + 1


def test_30_alpha_counts_what_was_judged():
    trace = trace_of((4, 4), (4, 0), (4, 2))
    assert trace.alpha == 6 / 8  # 6 accepted, 2 refusals
    assert trace.draft_acceptance_rate == 6 / 12
    assert trace.acceptance_by_position == [2 / 3, 2 / 3, 1 / 3, 1 / 3]
    assert trace.alpha_by_position == [2 / 3, 1.0, 1 / 2, 1.0]


def test_31_counters_follow_the_cut_output():
    """d1, EOS, d3, d4 all matching: two tokens committed, no bonus, nothing refused."""
    law = {1: 3, 2: 9, 3: 4, 4: 5}
    target = ToyTarget(lambda c: [float(i == law.get(len(c), 0)) for i in range(10)], 10, (9,))
    known = Scripted(lambda seen: [3, 9, 4, 5][len(seen) - 1 :])
    trace = generate(target, [[0]], known, k=4, max_new_tokens=20).trace
    assert (trace.num_tokens, trace.num_drafted, trace.num_accepted) == (2, 2, 2)
    assert trace.num_rejected == 0
    assert trace.steps[0].kinds == ["accepted", "accepted"]
    assert trace.tau == 2


def test_32_ratios_are_pooled_and_the_spread_is_beside_them():
    slow = Trace([[row_step(1, 1)]], {"score": 2.0})
    fast = Trace([[row_step(10, 1)] * 20], {"score": 20.0})
    pooled = Trace.pool([slow, fast])
    assert pooled.draft_acceptance_rate == pytest.approx(21 / 201)  # mean of ratios would be .55
    assert pooled.tokens_per_second == pytest.approx(42 / 22)
    low, high = pooled.interval(lambda t: t.draft_acceptance_rate)
    assert low <= pooled.draft_acceptance_rate <= high
    assert pooled.interval(lambda t: t.tau) == pooled.interval(lambda t: t.tau)
    assert slow.interval(lambda t: t.tau) is None


def test_33_constant_alpha_shows_as_constant_alpha_at_every_k():
    """The rate by drafted tokens falls with k; alpha and the conditional rates do not."""
    rates = []
    for k in (2, 4, 8):
        steps = []
        for accepted in range(k + 1):
            share = 0.7**accepted * (0.3 if accepted < k else 1)
            steps += [row_step(k, accepted)] * round(share * 100_000)
        trace = Trace([steps])
        rates.append(trace.draft_acceptance_rate)
        assert trace.alpha == pytest.approx(0.7, abs=1e-3)
        assert trace.alpha_by_position == pytest.approx([0.7] * k, abs=5e-3)
        assert trace.tau == pytest.approx((1 - 0.7 ** (k + 1)) / 0.3, abs=1e-3)
    assert rates == pytest.approx([0.595, 0.443, 0.275], abs=1e-3)


def test_33_nothing_drafted_is_none_and_never_zero_or_a_crash():
    trace = trace_of((0, 0), (0, 0))
    assert trace.alpha is None
    assert trace.draft_acceptance_rate is None
    assert trace.acceptance_by_position == []
    assert trace.draft_coverage == 0
    assert trace.tau == 1
    assert trace.steps[0].kinds == ["plain"]
    empty = Trace()
    assert all(not value for value in empty.summary().values())


def test_33_coverage_tells_how_often_anything_was_drafted():
    assert trace_of((4, 4), (0, 0), (0, 0), (0, 0)).draft_coverage == 1 / 4


def test_kinds_name_every_token():
    assert row_step(3, 3).kinds == ["accepted"] * 3 + ["bonus"]
    assert row_step(3, 1).kinds == ["accepted", "recovered"]
    assert RowStep([7, 8], [7, 8], 2, 0.0).kinds == ["accepted", "accepted"]


def test_latencies_per_token_and_per_burst():
    """Three bursts at 1, 2 and 4 s with 2, 1 and 3 tokens."""
    row = [row_step(1, 1, 1.0), row_step(1, 0, 2.0), row_step(2, 2, 4.0)]
    trace = Trace([row])
    assert trace.ttft == 1.0
    assert trace.itl == pytest.approx(3 / 5)
    assert trace.itl_per_burst == pytest.approx(3 / 2)


def test_a_step_is_counted_row_by_row():
    trace = Trace()
    seconds = {"propose": 0.1, "score": 0.3}
    trace.add(Step([row_step(2, 1), row_step(2, 2)], [None, "eos"], seconds))
    trace.add(Step([row_step(2, 0), None], ["length", "eos"], seconds))
    assert [len(row) for row in trace.rows] == [2, 1]
    assert trace.num_forwards == 2
    assert trace.tau == 6 / 3
    assert trace.time_share == pytest.approx({"propose": 0.25, "score": 0.75})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_identities_between_the_numbers(pairs):
    trace = trace_of(*[(drafted, min(drafted, accepted)) for drafted, accepted in pairs])
    assert trace.num_tokens == trace.num_accepted + len(trace.steps)
    drafts = [step for step in trace.steps if step.drafted]
    assert sum(trace.acceptance_by_position) * len(drafts) == pytest.approx(trace.num_accepted)
    json.dumps(trace.summary())
    assert set(trace.summary()) == set(SUMMARY)


def test_the_trace_of_a_run_agrees_with_its_tokens():
    target = ToyTarget(lambda c: [float(i == len(c) % 5) for i in range(5)], 5)
    proposer = Scripted(lambda seen: [len(seen) % 5, (len(seen) + 1) % 5, 4, 4])
    got = generate(target, [[0], [0, 0]], proposer, k=4, max_new_tokens=17)
    assert got.trace.num_tokens == sum(map(len, got.tokens)) == 34
    assert [t for step in got.trace.rows[0] for t in step.tokens] == got.tokens[0]
    assert set(got.trace.seconds) == {"prefill", "propose", "score", "verify", "other"}
    ats = [step.at for step in got.trace.rows[0]]
    assert ats == sorted(ats)
    assert got.trace.total_seconds >= ats[-1] > 0


@pytest.mark.parametrize(
    ("tokens", "n", "share"),
    [
        ([], 4, 0),
        ([1, 2, 3], 4, 0),
        (range(20), 4, 0),
        ([1] * 13, 4, 0.9),  # ten 4-grams, all alike: nine stood there before
        ([1, 2, 1, 2, 1], 2, 0.5),
        ([7, 7, 8], 1, 1 / 3),
    ],
)
def test_rep4_is_the_share_of_ngrams_already_written(tokens, n, share):
    assert repeated_ngram_share(list(tokens), n) == pytest.approx(share)
