"""The speed-up model against published numbers, brute force and simulation."""

import math

import numpy as np
import pytest

from specdec_lab.study import theory

PAIRS = [(a, c) for a in (0.3, 0.5, 0.7, 0.8, 0.9) for c in (0.02, 0.05, 0.1, 0.2, 0.4)]


@pytest.mark.parametrize(
    ("acceptance", "speedup"), [(0.9, 3.56), (0.7, 2.41), (0.5, 1.68), (0.3, 1.24)]
)
def test_the_four_values_of_the_model(acceptance, speedup):
    assert round(theory.expected_speedup(acceptance, 4, 0.15), 2) == speedup


@pytest.mark.parametrize(("acceptance", "k", "operations", "speed"), theory.LEVIATHAN_TABLE_1)
def test_the_formulas_give_leviathans_table_1(acceptance, k, operations, speed):
    assert round(theory.expected_operations(acceptance, k), 2) == operations
    for per in ("step", "token"):
        assert round(theory.expected_speedup(acceptance, k, 0, per=per), 2) == speed


def test_the_draft_has_operations_too():
    assert theory.expected_operations(0.0, 3, 0.1) == pytest.approx(4.3)


@pytest.mark.parametrize("k", [0, 1, 4, 9])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.9])
def test_one_rate_equals_the_closed_form_and_a_list_of_equal_rates(acceptance, k):
    closed = (1 - acceptance ** (k + 1)) / (1 - acceptance)
    assert theory.expected_tokens(acceptance, k) == pytest.approx(closed)
    assert theory.expected_tokens([acceptance] * 9, k) == pytest.approx(closed)


def test_a_sure_guess_writes_k_plus_one():
    assert theory.expected_tokens(1.0, 7) == 8


def test_conditional_rates_multiply():
    assert theory.survival([0.5, 0.4, 1.0], 3) == pytest.approx([0.5, 0.2, 0.2])
    assert theory.expected_tokens(np.array([0.5, 0.4]), 2) == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("acceptance", "k", "words"),
    [(1.1, 2, "between 0 and 1"), ([0.5], 2, "each of the 2"), (0.5, -1, "negative")],
)
def test_rates_without_meaning_are_refused(acceptance, k, words):
    with pytest.raises(ValueError, match=words):
        theory.expected_tokens(acceptance, k)


def test_costs_without_meaning_are_refused():
    with pytest.raises(ValueError, match="less than nothing"):
        theory.expected_speedup(0.5, 2, -0.1)
    with pytest.raises(ValueError, match='"step" or "token"'):
        theory.expected_speedup(0.5, 2, 0.1, per="second")


def test_the_two_costs_differ_by_a_factor_k():
    for k in (1, 3, 8):
        once = theory.expected_speedup(0.8, k, 0.1 * k)
        assert once == pytest.approx(theory.expected_speedup(0.8, k, 0.1, per="token"))


@pytest.mark.parametrize("per", ["step", "token"])
def test_k_0_is_plain_decoding(per):
    assert theory.expected_speedup(0.9, 0, 0.5, per=per) == 1


@pytest.mark.parametrize(("acceptance", "cost"), PAIRS)
def test_the_best_k_per_token_equals_brute_force(acceptance, cost):
    brute = theory.best_k(acceptance, cost, range(200), per="token")
    assert theory.optimal_k(acceptance, cost) == brute


@pytest.mark.parametrize(("acceptance", "cost"), [p for p in PAIRS if p[1] < p[0]])
def test_the_fractional_optimum_is_a_neighbour(acceptance, cost):
    fraction = theory.continuous_optimum(acceptance, cost)
    assert abs(theory.optimal_k(acceptance, cost) - fraction) < 1
    slope = [
        (1 - acceptance ** (fraction + shift + 1)) / (1 + (fraction + shift) * cost)
        for shift in (-0.01, 0, 0.01)
    ]
    assert max(slope) == slope[1]


def test_the_fractional_optimum_needs_a_gain():
    with pytest.raises(ValueError, match="draft_cost < acceptance"):
        theory.continuous_optimum(0.2, 0.3)


@pytest.mark.parametrize(
    ("acceptance", "cost", "k", "speedup"),
    [
        *[(0.7, 0.05, 6, 2.35), (0.7, 0.1, 4, 1.98), (0.7, 0.2, 3, 1.58), (0.8, 0.05, 8, 3.09)],
        *[(0.8, 0.1, 6, 2.47), (0.8, 0.2, 4, 1.87), (0.9, 0.1, 10, 3.43)],
    ],
)
def test_known_optima_per_token(acceptance, cost, k, speedup):
    assert theory.optimal_k(acceptance, cost) == k
    assert round(theory.expected_speedup(acceptance, k, cost, per="token"), 2) == speedup


def test_per_step_every_further_token_helps_and_the_limit_is_not_passed():
    values = [theory.expected_speedup(0.8, k, 0.3) for k in range(1, 60)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(theory.limit_per_step(0.8, 0.3), rel=1e-4)
    assert theory.optimal_k(0.8, 0.3, per="step") == math.inf
    assert theory.optimal_k(0.2, 0.3, per="step") == 0
    assert theory.limit_per_step(1, 0.3) == math.inf


def test_free_or_sure_drafts_have_no_best_k():
    assert theory.optimal_k(0.5, 0.0) == theory.optimal_k(1, 0.1) == math.inf
    assert theory.optimal_k(1, 1.0) == theory.optimal_k(0.1, 0.2) == 0


@pytest.mark.parametrize(
    ("k", "cost", "acceptance"),
    [
        *[(1, 0.2, 0.2), (2, 0.2, 0.171), (math.inf, 0.2, 0.1667)],
        *[(1, 1, 1), (2, 1, 0.618), (math.inf, 1, 0.5)],
    ],
)
def test_break_even_per_step(k, cost, acceptance):
    assert theory.break_even(k, cost) == pytest.approx(acceptance, abs=5e-4)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("cost", [0.05, 0.3])
def test_at_the_break_even_nothing_is_won_and_nothing_lost(k, cost):
    for how in ({}, {"per": "token"}, {"verify": lambda k: 1 + 0.1 * k}):
        rate = theory.break_even(k, cost, **how)
        assert theory.expected_speedup(rate, k, cost, **how) == pytest.approx(1)
    assert theory.break_even(2, 0.3) == pytest.approx((math.sqrt(1 + 4 * 0.3) - 1) / 2)


def test_a_draft_dearer_than_all_it_can_win_never_pays():
    assert theory.break_even(1, 1.5) is None
    assert theory.break_even(3, 1.5, per="token") is None


def test_measured_verification_is_read_between_its_points():
    verify = theory.verification_cost({"1": 0.05, "2": 0.06, "5": 0.09})
    assert [verify(k) for k in (0, 1, 2, 4)] == pytest.approx([1, 1.2, 1.4, 1.8])
    with pytest.raises(ValueError, match="6 rows were not measured"):
        verify(5)
    with pytest.raises(ValueError, match="one row"):
        theory.verification_cost({2: 1.0})


def test_more_rows_are_never_foretold_to_cost_less_than_fewer():
    verify = theory.verification_cost({"1": 1.0, "2": 1.2, "5": 0.97, "9": 1.4})
    assert [verify(k) for k in (0, 1, 4, 8)] == [1.0, 1.2, 1.2, 1.4]


def test_dear_rows_make_the_best_k_finite():
    ks = range(17)
    free = theory.best_k(0.7, 0.02, ks)
    assert free == 16
    assert theory.best_k(0.7, 0.02, ks, verify=lambda k: 1 + 0.2 * k) < 4
    assert theory.best_k(0.7, 0.02, ks, verify=lambda k: 1 + k) == 0


def test_accepted_over_drafted_is_no_acceptance_rate():
    assert round(theory.expected_rate(0.7, 5), 3) == 0.388
    accepted = theory.simulate_accepted(0.7, 5, 20_000)
    total, rejected = int(accepted.sum()), int((accepted < 5).sum())
    assert theory.estimate_acceptance(total, rejected) == pytest.approx(0.7, abs=0.01)
    assert total / (5 * 20_000) == pytest.approx(0.388, abs=0.01)
    assert 1 + accepted.mean() == pytest.approx(theory.expected_tokens(0.7, 5), abs=0.03)


def test_nothing_counted_is_no_rate():
    with pytest.raises(ValueError, match="no token was judged"):
        theory.estimate_acceptance(0, 0)
    with pytest.raises(ValueError, match="at least 1"):
        theory.expected_rate(0.5, 0)


def test_contexts_that_differ_gain_more_than_their_mean_says():
    assert round(theory.expected_tokens_beta(2, 1, 5), 2) == 3.19
    assert round(theory.expected_tokens(2 / 3, 5), 2) == 2.74
    rates = np.random.default_rng(1).beta(2, 1, 40_000)
    accepted = theory.simulate_accepted(rates, 5, len(rates))
    assert 1 + accepted.mean() == pytest.approx(3.19, abs=0.03)
