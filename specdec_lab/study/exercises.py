"""Checks of the exercises: each ``check_...`` function says in a friendly sentence what is right or
what to look at again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.decode import Generation

LOOP_LIMIT = 0.3  # share of repeated 4-grams from which a text counts as a loop


def check_metrics(
    tau: float | None, alpha: float | None, draft_acceptance_rate: float | None
) -> str:
    """Notebook 00: 60 tokens in 24 forwards; 80 drafted, 36 of them accepted, 14 steps refused."""
    if None in (tau, alpha, draft_acceptance_rate):
        return "Not yet: replace every None by a number."
    if abs(tau - 60 / 24) > 0.005:
        return "Not yet: tau is the number of tokens divided by the number of forwards."
    if abs(alpha - 36 / 50) > 0.005:
        return "Not yet: alpha counts judged tokens only, accepted / (accepted + refused)."
    if abs(draft_acceptance_rate - 36 / 80) > 0.005:
        return "Not yet: draft_acceptance_rate counts every drafted token, accepted / drafted."
    return "Right: three numbers, and each of them says something else."


def check_most_tokens(most_tokens: Callable[[int], int | None]) -> str:
    """Notebook 00: ``most_tokens(k)`` that one step with k drafted tokens can write."""
    for k in (0, 1, 4, 12):
        got = most_tokens(k)
        if got is None:
            return "Not yet: return a number."
        if got == k:
            return f"Not yet: for k = {k} there is one token more, which costs nothing. Which?"
        if got != k + 1:
            return f"Not yet: for k = {k} the most is not {got}."
    return "Right: all k drafted tokens, and the target's own token behind them."


def check_last_kind(last_kind: Callable[[int, int], str | None]) -> str:
    """Notebook 00: ``last_kind(num_drafted, num_accepted)`` of the last token of a step."""
    cases = {(4, 4): "bonus", (4, 2): "recovered", (4, 0): "recovered", (0, 0): "plain"}
    for (drafted, accepted), want in cases.items():
        got = last_kind(drafted, accepted)
        if got is None:
            return 'Not yet: return "bonus", "recovered" or "plain".'
        if got != want:
            asked = f"{drafted} drafted and {accepted} accepted"
            return f"Not yet: {asked} is not {got!r}. Was anything drafted? Was anything refused?"
    return "Right: bonus after a full success, recovered after a refusal, else plain."


def check_own_prompt(generation: Generation | None, least_tau: float = 3.0) -> str:
    """Notebook 00: a prompt of your own with a high tau, whose answer is no endless repetition."""
    if generation is None:
        return "Not yet: replace None by what generate returns."
    tau, tokens = generation.trace.tau or 0.0, generation.tokens[0]
    if len(tokens) < 16:
        return f"Not yet: only {len(tokens)} tokens; ask for a longer answer."
    if tau < least_tau:
        return f"Not yet: tau = {tau:.2f}; let the answer copy more of the prompt."
    if repeated_share(tokens) > LOOP_LIMIT:
        return f"Not yet: tau = {tau:.2f}, but the text goes round in circles, which is too easy."
    return f"Right: tau = {tau:.2f}."


def repeated_share(tokens: Sequence[int], n: int = 4) -> float:
    """Share of the n-grams of a text that stand in it earlier; 0 for a text shorter than n."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def check_kv_bytes(kv_bytes: Callable[[int, int, int, int, float], float | None]) -> str:
    """Notebook 01: ``kv_bytes(num_layers, num_kv_heads, head_dim, context, bytes_per_value)``."""
    for case in ((30, 3, 64, 1, 2), (30, 3, 64, 1000, 2), (2, 8, 128, 10, 0.5)):
        got, want = kv_bytes(*case), 2 * math.prod(case)
        if got is None:
            return "Not yet: return a number of bytes."
        if got == want / 2:
            return f"Not yet: kv_bytes{case} is twice {got:,.0f}: keys AND values are stored."
        if got != want:
            return f"Not yet: kv_bytes{case} should be {want:,.0f}, not {got:,.0f}."
    return "Right: two vectors per layer and key/value head, for every token of the context."


def check_ridge_rows(ridge_rows: Callable[[float, float, float], float | None]) -> str:
    """Notebook 01: ``ridge_rows(flops, bandwidth, bytes_per_weight)`` of a forward's products."""
    cases = [
        (989e12, 3.35e12, 2.0, "with 2 bytes a weight, n rows have n FLOP per byte"),
        (989e12, 3.35e12, 0.5, "a smaller weight is read faster, so the ridge comes earlier"),
        (100e9, 20e9, 4.0, "each row does 2 FLOPs with a weight of 4 bytes"),
    ]
    for flops, bandwidth, size, story in cases:
        got, want = ridge_rows(flops, bandwidth, size), flops / bandwidth * size / 2
        if got is None:
            return "Not yet: return a number of rows."
        if abs(got - want) > 1e-6 * want:
            asked = f"ridge_rows({flops:.3g}, {bandwidth:.3g}, {size:g})"
            return f"Not yet: {story}. {asked} should be {want:.3g}, not {got:.3g}."
    return "Right: reading and computing take equally long there."


def check_step_time(step_time: Callable[[int], float | None]) -> str:
    """Notebook 01: ``step_time(rows)`` in ms: reading takes 20 ms, computing 4 ms a row."""
    for rows in (1, 5, 6, 20):
        got, want = step_time(rows), max(20, 4 * rows)
        if got is None:
            return "Not yet: return a number of milliseconds."
        if got == 20 + 4 * rows:
            return "Not yet: reading and computing go on at once. Which of them is waited for?"
        if abs(got - want) > 1e-9:
            return f"Not yet: for {rows} rows it should be {want} ms, not {got:g}."
    return "Right: the longer of the two; up to 5 rows, computing hides behind reading."


def check_walk(walk: Callable[[list[int], list[int]], list[int]]) -> str:
    """Notebook 02: ``walk(drafted, says)`` returns the tokens that a greedy step writes."""
    cases = [
        ([7, 8, 9], [7, 8, 9, 4], [7, 8, 9, 4], "all drafted tokens are right: the bonus is free"),
        ([7, 8, 9], [7, 5, 9, 4], [7, 5], "draft 2 is wrong: what lies behind it is thrown away"),
        ([7, 8], [6, 8, 9], [6], "draft 1 is wrong: the target's own token is still written"),
        ([], [3], [3], "nothing is drafted: the step is a plain one"),
    ]
    for drafted, says, want, story in cases:
        got = walk(list(drafted), list(says))
        if got != want:
            return f"Not yet: {story}. walk({drafted}, {says}) should be {want}, not {got}."
    return "Right: front to back, stop at the first refusal, and always one token of the target."


def check_cache_length(cache_length: Callable[[int, list[int]], int]) -> str:
    """Notebook 02: ``cache_length(prompt_length, accepted)`` after steps with these numbers of
    accepted tokens.
    """
    cases = [
        (10, [], 9, "before the first step the prompt's last token is pending"),
        (10, [0], 10, "a step always writes one token more than it accepts"),
        (10, [4, 0, 2], 18, "every step adds its accepted tokens and one more"),
    ]
    for prompt_length, accepted, want, story in cases:
        got = cache_length(prompt_length, list(accepted))
        if got != want:
            asked = f"cache_length({prompt_length}, {accepted})"
            return f"Not yet: {story}. {asked} should be {want}, not {got}."
    return "Right: the cache holds everything but the pending token."


def check_keep(keep: Callable[[float, float, float], bool]) -> str:
    """Notebook 02: ``keep(target_prob, draft_prob, coin)`` decides on one drafted token."""
    cases = [
        (0.6, 0.3, 0.99, True, "the target likes the token more than the draft does: keep it"),
        (0.2, 0.8, 0.24, True, "the coin 0.24 lies below 0.2 / 0.8 = 0.25"),
        (0.2, 0.8, 0.26, False, "the coin 0.26 lies above 0.2 / 0.8 = 0.25"),
        (0.0, 0.5, 0.0, False, "the target never says this token, and coins can be exactly 0"),
    ]
    for target_prob, draft_prob, coin, want, story in cases:
        got = bool(keep(target_prob, draft_prob, coin))
        if got != want:
            asked = f"keep({target_prob}, {draft_prob}, {coin})"
            return f"Not yet: {story}. {asked} should be {want}."
    return "Right: keep the token where coin < min(1, p / q), with < and not <=."


def check_acceptance_and_residual(acceptance: float | None, residual: list[float] | None) -> str:
    """Notebook 03: acceptance and residual of p = (.5, .3, .2) and q = (.2, .3, .5)."""
    if acceptance is None or residual is None:
        return "Not yet: replace both None, one by a number, the other by three numbers."
    if abs(acceptance - 0.7) > 1e-6:
        return "Not yet: the acceptance is the sum of min(p, q), one term for each of the tokens."
    if len(residual) != 3 or abs(sum(residual) - 1) > 1e-6:
        return "Not yet: the residual is a law over three tokens, so its sum must be 1."
    if max(abs(a - b) for a, b in zip(residual, (1, 0, 0), strict=True)) > 1e-6:
        return "Not yet: keep p - q where it is positive, 0 elsewhere, and divide by the sum."
    return "Right: 0.7 is accepted, and all that is missing is missing at token 0."


def check_fresh_draw_bias(bias: Callable[[float], float | None]) -> str:
    """Notebook 03: ``bias(p_x)`` is the total variation that a fresh draw after refusing x
    causes.
    """
    for p_x in (0.0, 0.2, 0.5, 1.0):
        got = bias(p_x)
        if got is None:
            return "Not yet: return a number."
        if abs(got - p_x * (1 - p_x)) > 1e-9:
            return (
                f"Not yet: for p_x = {p_x} it is not {got:.3g}. x is accepted with p_x, and "
                "after each refusal it gets a second chance: how much too often does it come out?"
            )
    return "Right: p_x (1 - p_x), at its worst 1/4 for p_x = 1/2."


def check_lenient_law(law: Callable[[list[float], list[float], float], list[float] | None]) -> str:
    """Notebook 03: ``law(p, q, c)`` is what min(1, c p/q) with the usual residual emits."""
    target_probs, draft_probs = [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]
    cases = [
        (1.0, [0.6, 0.3, 0.1], "c = 1 is the right rule"),
        (1.2, [0.52, 0.36, 0.12], "more of tokens 1 and 2 is kept, so less can be recovered"),
        (5.0, [0.2, 0.5, 0.3], "everything is kept: the text is the draft's own"),
    ]
    for c, want, story in cases:
        got = law(list(target_probs), list(draft_probs), c)
        if got is None or len(got) != 3:
            return "Not yet: return a list of three probabilities."
        if max(abs(a - b) for a, b in zip(got, want, strict=True)) > 1e-9:
            shown = [round(x, 3) for x in got]
            return f"Not yet: {story}. For c = {c} the law is {want}, not {shown}."
    return "Right: the larger c, the further from p, until the draft speaks alone."
