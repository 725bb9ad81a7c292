"""What acceptance buys: expected tokens, speed-up, the best k and the break-even, in closed form.

Plain numbers in and out; nothing here needs torch. One target forward over one row costs 1. Two
quantities are called c in the literature, and they are not the same:

* ``per="step"``: drafting costs c per *step*, however long the draft (one-pass drafters, n-gram);
* ``per="token"``: drafting costs c per *drafted token*, so k c per step (a draft model; Leviathan
  et al. 2023, definition 3.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import mul

import numpy as np

Acceptance = float | Sequence[float]
Verification = Callable[[int], float] | None

# Leviathan et al. 2023, table 1 (costs of drafting taken as 0): acceptance, k, factor of arithmetic
# operations, speed-up.
LEVIATHAN_TABLE_1 = (
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
)


def survival(acceptance: Acceptance, k: int) -> list[float]:
    """Chance A_i that draft tokens 1..i are all accepted, for i = 1..k (the *marginals*).

    ``acceptance`` is one rate for every place, or the conditional rates a_1, a_2, ... of at least k
    places. Raises ValueError for rates outside [0, 1], too few of them, and a negative k.
    """
    if k < 0:
        raise ValueError(f"k must not be negative, but it is {k}")
    rates = [acceptance] * k if np.ndim(acceptance) == 0 else [*acceptance][:k]
    if len(rates) < k:
        raise ValueError(f"give a rate for each of the {k} places, not only {len(rates)}")
    if not all(0 <= rate <= 1 for rate in rates):
        raise ValueError(f"an acceptance rate lies between 0 and 1, but one of {rates} does not")
    return [float(chance) for chance in accumulate(rates, mul)]


def expected_tokens(acceptance: Acceptance, k: int) -> float:
    """Tokens that one step with k drafted ones writes on average, the target's own one included.

    1 + sum of A_i; for one rate a it is (1 - a^(k+1)) / (1 - a), Leviathan's equation 1.
    """
    return 1 + sum(survival(acceptance, k))


def step_cost(
    k: int, draft_cost: float, *, per: str = "step", verify: Verification = None
) -> float:
    """What one step costs, a plain target forward being 1: verification V(k) plus the drafting.

    ``verify`` gives V(k), the cost of a target forward over 1 + k rows; free rows if left out.
    k = 0 is plain decoding: nothing is drafted or paid. Raises ValueError for a negative cost and
    for another ``per`` than "step" and "token".
    """
    if per not in ("step", "token"):
        raise ValueError(f'per must be "step" or "token", not {per!r}')
    if draft_cost < 0:
        raise ValueError(f"a draft cannot cost less than nothing, but draft_cost is {draft_cost}")
    drafting = draft_cost * (k if per == "token" else min(k, 1))
    return (verify(k) if verify else 1.0) + drafting


def expected_speedup(
    acceptance: Acceptance,
    k: int,
    draft_cost: float,
    *,
    per: str = "step",
    verify: Verification = None,
) -> float:
    """How many times as fast as plain decoding: expected tokens / cost of a step.

    By default a step costs 1 + c. ``per="token"`` is Leviathan's theorem 3.8, cost 1 + k c;
    ``verify`` puts V(k) in the place of the 1, see `step_cost`.
    """
    return expected_tokens(acceptance, k) / step_cost(k, draft_cost, per=per, verify=verify)


def expected_operations(acceptance: Acceptance, k: int, draft_operations: float = 0.0) -> float:
    """Factor by which the arithmetic grows: (1 + k + k c) / expected tokens.

    ``draft_operations`` is c, the draft's operations per token in units of the target's
    (Leviathan's theorem 3.11, where it is called ĉ).
    """
    return (1 + k + k * draft_operations) / expected_tokens(acceptance, k)


def limit_per_step(acceptance: float, draft_cost: float) -> float:
    """The speed-up of endless drafts at cost 1 + c: 1 / ((1 - a) (1 + c)), never reached."""
    return math.inf if acceptance == 1 else 1 / ((1 - acceptance) * (1 + draft_cost))


def optimal_k(acceptance: float, draft_cost: float, *, per: str = "token") -> float:
    """The k that is fastest when verification is free, from the closed form.

    Per token it is the first k with a^(k+1) (1 + k c) <= c E(a, k), 0 where a <= c. Per step there
    is no largest useful k: ``inf``, or 0 where a <= c / (1 + c) and nothing pays.
    """
    step_cost(1, draft_cost, per=per)  # refuses what has no meaning
    if per == "step":
        return math.inf if acceptance > draft_cost / (1 + draft_cost) else 0
    if acceptance <= draft_cost:
        return 0
    if acceptance == 1 or draft_cost == 0:
        return math.inf
    tokens, power, k = 1.0, acceptance, 0  # E(a, k) and a^(k+1)
    while power * (1 + k * draft_cost) > draft_cost * tokens:
        tokens, power, k = tokens + power, power * acceptance, k + 1
    return k


def continuous_optimum(acceptance: float, draft_cost: float) -> float:
    """The best k per token if k could be a fraction; the whole-number optimum is a neighbour.

    -1 - 1/L - (1-c)/c - W(-exp(-1 - L(1-c)/c))/L with L = -ln a and the lower branch of Lambert's
    W. Needs 0 < c < a < 1, else ValueError.
    """
    if not 0 < draft_cost < acceptance < 1:
        raise ValueError("there is such an optimum only for 0 < draft_cost < acceptance < 1")
    rate, odds = -math.log(acceptance), (1 - draft_cost) / draft_cost
    return -1 - 1 / rate - odds - _lower_lambert(rate * odds) / rate


def _lower_lambert(u: float) -> float:
    """The solution w <= -1 of w exp(w) = -exp(-1 - u), u >= 0, by Newton's method from below."""
    w = -1 - math.sqrt(2 * u) - u  # a lower bound (Chatzigeorgiou 2013)
    for _ in range(60):
        if w >= -1:
            return -1.0
        step = (w + math.log(-w) + 1 + u) / (1 + 1 / w)
        w -= step
        if abs(step) < 1e-14 * abs(w):
            break
    return w


def best_k(
    acceptance: Acceptance,
    draft_cost: float,
    ks: Iterable[int],
    *,
    per: str = "step",
    verify: Verification = None,
) -> int:
    """The fastest of the given ks, by trying them all; the smallest of equals."""
    return max(
        sorted(set(ks)),
        key=lambda k: expected_speedup(acceptance, k, draft_cost, per=per, verify=verify),
    )


def break_even(
    k: float, draft_cost: float, *, per: str = "step", verify: Verification = None
) -> float | None:
    """The acceptance rate above which k drafted tokens are faster than plain decoding.

    Solves a + a² + ... + a^k = cost of the step - 1. ``k`` may be ``inf`` at cost 1 + c, with the
    answer c / (1 + c). None where not even an acceptance of 1 pays.
    """
    if math.isinf(k) and per == "step" and verify is None:
        return draft_cost / (1 + draft_cost)
    k = int(k)
    extra = step_cost(k, draft_cost, per=per, verify=verify) - 1
    if extra > k + 1e-12:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        pays = expected_tokens(middle, k) - 1 > extra
        low, high = (low, middle) if pays else (middle, high)
    return high


def verification_cost(table: Mapping[int | str, float]) -> Callable[[int], float]:
    """V(k) from measured times ``table[rows]``: time of 1 + k rows / time of one row.

    Straight lines between the measured numbers of rows. More rows cost no less than fewer: a lower
    time is noise, and the highest so far stands for it. ValueError for a table without one row,
    and, when asked, for more rows than were measured.
    """
    points = sorted((int(rows), float(time)) for rows, time in table.items())
    if not points or points[0][0] != 1:
        raise ValueError("measure the cost of one row too: it is the unit of all others")
    rows, times = zip(*points, strict=True)
    times = np.maximum.accumulate(times)

    def verify(k: int) -> float:
        if 1 + k > rows[-1]:
            raise ValueError(f"{1 + k} rows were not measured; the largest number is {rows[-1]}")
        return float(np.interp(1 + k, rows, times)) / times[0]

    return verify


def expected_rate(acceptance: Acceptance, k: int) -> float:
    """What accepted / drafted tends to: the mean of A_1 .. A_k. It is *not* the acceptance rate."""
    if k < 1:
        raise ValueError("without drafted tokens there is no rate; k must be at least 1")
    return sum(survival(acceptance, k)) / k


def estimate_acceptance(accepted: int, rejected: int) -> float:
    """The acceptance rate that makes the counts most likely: accepted / (accepted + rejected).

    ``rejected`` counts refusals, at most one a step: what lies behind a refusal was never judged.
    """
    if accepted + rejected == 0:
        raise ValueError("no token was judged, so there is nothing to estimate")
    return accepted / (accepted + rejected)


def simulate_accepted(
    acceptance: float | np.ndarray, k: int, steps: int, seed: int = 0
) -> np.ndarray:
    """Accepted tokens of each of ``steps`` steps, drawn by coins, (steps,).

    ``acceptance`` is one rate, or an array with a rate for every step (contexts that differ).
    """
    coins = np.random.default_rng(seed).random((steps, k))
    heads = coins < np.broadcast_to(np.reshape(acceptance, (-1, 1)), (steps, k))
    return np.logical_and.accumulate(heads, axis=1).sum(axis=1)


def expected_tokens_beta(a: float, b: float, k: int) -> float:
    """Expected tokens where every step has an acceptance rate of its own, from a Beta(a, b) law.

    The mean of rate^i is (a)(a+1)...(a+i-1) / ((a+b)...(a+b+i-1)), never below the i-th power of
    the mean rate a / (a+b): easy stretches gain more than hard ones lose.
    """
    return expected_tokens([(a + i) / (a + b + i) for i in range(k)], k)
