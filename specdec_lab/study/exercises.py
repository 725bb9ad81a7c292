"""Checks of the exercises: each ``check_...`` function says in a friendly sentence what is right or
what to look at again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    from specdec_lab.decoding.trace import repeated_ngram_share

    tau, tokens = generation.trace.tau or 0.0, generation.tokens[0]
    if len(tokens) < 16:
        return f"Not yet: only {len(tokens)} tokens; ask for a longer answer."
    if tau < least_tau:
        return f"Not yet: tau = {tau:.2f}; let the answer copy more of the prompt."
    if repeated_ngram_share(tokens) > LOOP_LIMIT:
        return f"Not yet: tau = {tau:.2f}, but the text goes round in circles, which is too easy."
    return f"Right: tau = {tau:.2f}."


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


def check_per_token_speedup(speedup: Callable[[float, int, float], float | None]) -> str:
    """Notebook 04: ``speedup(acceptance, k, draft_cost)`` where every drafted token costs c."""
    for acceptance, k, cost in ((0.7, 1, 0.1), (0.8, 6, 0.1), (0.3, 4, 0.5)):
        want = sum(acceptance**i for i in range(k + 1)) / (1 + k * cost)
        got = speedup(acceptance, k, cost)
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-6:
            hint = "is every drafted token paid for, and is the target's own token counted?"
            return f"Not yet: for a = {acceptance}, k = {k}, c = {cost} it is not {got:.3g}; {hint}"
    return "Right: the same tokens as before, divided by 1 + k c instead of 1 + c."


def check_break_even_of_two(least: Callable[[float], float | None]) -> str:
    """Notebook 04: ``least(c)``, the acceptance at which k = 2 at cost 1 + c gains nothing."""
    for cost in (0.2, 0.5, 1.0):
        got = least(cost)
        if got is None:
            return "Not yet: return a number."
        if abs(got + got * got - cost) > 1e-6:
            return (
                f"Not yet: with c = {cost} and an acceptance of {got:.3g} a step writes "
                f"{1 + got + got * got:.3g} tokens and costs {1 + cost:.3g}. Make them equal."
            )
    return "Right: the solution of a + a² = c; a second guess lowers what the first must bring."


def check_acceptance_estimate(estimate: Callable[[list[tuple[int, int]]], float | None]) -> str:
    """Notebook 04: ``estimate(steps)`` of the acceptance, ``steps`` being (drafted, accepted)."""
    cases = [
        ([(4, 1), (4, 0)], 1 / 3, "what lies behind a refusal was never judged"),
        ([(4, 4), (4, 2)], 6 / 7, "a step that keeps its whole draft refused nothing"),
    ]
    for steps, want, story in cases:
        got = estimate(list(steps))
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-6:
            return f"Not yet: {story}. For {steps} it is {want:.3f}, not {got:.3g}."
    return "Right: accepted / (accepted + refused), at most one refusal a step."


def check_first_place(look_up: Callable[[list[int], int, int], list[int]]) -> str:
    """Notebook 05: ``look_up(text, n, k)``: up to k tokens behind the FIRST place of the tail."""
    cases = [
        ([1, 2, 7, 1, 2, 8, 1, 2], 2, 3, [7, 1, 2], "the tail 1 2 stands there twice; first place"),
        ([1, 2, 7, 1, 2], 2, 9, [7, 1, 2], "what does not exist yet is not drafted"),
        ([5, 5, 5], 2, 4, [5], "a place may overlap the tail, but it is not the tail itself"),
        ([1, 2, 3], 2, 4, [], "the tail stands nowhere else: nothing is drafted"),
    ]
    for text, n, k, want, story in cases:
        got = look_up(list(text), n, k)
        if got != want:
            return f"Not yet: {story}. look_up({text}, {n}, {k}) should be {want}, not {got}."
    return "Right: the same place as NGram(occurrence='first') for one n."


def check_fair_tau(fair_tau: Callable[[list[tuple[int, int, float]]], float | None]) -> str:
    """Notebook 05: ``fair_tau(runs)`` of (tokens, forwards, rep4): pooled, without loops."""
    got = fair_tau([(60, 50, 0.0), (60, 20, 0.1), (60, 6, 0.8)])
    if got is None:
        return "Not yet: return a number."
    if abs(got - 180 / 76) < 1e-6:
        return "Not yet: the third output is a loop (its rep4 is 0.8); leave it out."
    if abs(got - (60 / 50 + 60 / 20) / 2) < 1e-6:
        return "Not yet: ratios are pooled: add up first, divide once at the end."
    if abs(got - 120 / 70) > 1e-6:
        return f"Not yet: 120 tokens in 70 forwards are not {got:.3g}."
    return "Right: loops apart, sums first, one division last."


def check_longer(longer: Callable[[Callable, Callable], Callable]) -> str:
    """Notebook 07: ``longer(one, other)``: a guess that takes the longer of two guesses."""
    a, b = [1, 2, 3], [7, 8]
    cases = [(a, b, a), (b, a, a), ([], b, b), ([1, 2], b, [1, 2]), ([], [], [])]
    for left, right, want in cases:
        guess = longer(lambda text, left=left: left, lambda text, right=right: right)
        if not callable(guess):
            return "Not yet: return a function of the text, as the two guesses are."
        if guess([5]) != want:
            return f"Not yet: of {left} and {right} the longer is {want} (if equal, the first one)."
    return "Right: a guess made of two guesses, and no word about tokens or rows."


def check_law(proposer: object) -> str:
    """Notebook 07: is ``probs`` the law that the first drafted token is really drawn from?"""
    if not callable(getattr(proposer, "propose", None)):
        return "Not yet: replace None by a proposer."
    import torch

    from specdec_lab.decoding.randomness import enumerate_law
    from specdec_lab.decoding.records import Context, Draft
    from specdec_lab.decoding.sampling import Sampling

    text = torch.tensor([[0, 1, 1, 2]])
    length = torch.tensor([4])
    told: list[list[float]] = []

    def first(chance: object) -> tuple[int, ...]:
        draft = proposer.propose(Context(text, length, length), 1, Sampling(1.0), chance)
        if isinstance(draft, Draft) and draft.probs is not None:
            told[:] = [draft.probs[0, 0].tolist()]
            return (int(draft.tokens[0, 0]),)
        return ()

    drawn = enumerate_law(first)
    if not told:
        return "Not yet: propose must return a Draft with probs (1, 1, V)."
    for token, share in enumerate(told[0]):
        real = drawn.get((token,), 0.0)
        if abs(real - share) > 1e-9:
            return (
                f"Not yet: probs gives token {token} the share {share:.3g}, but it is drafted "
                f"with {real:.3g}. Hand over the very tensor that you draw from."
            )
    return "Right: told and drawn are one law, checked over every branch of chance."


def check_draft_budget(budget: Callable[[int, int, float, int], int | None]) -> str:
    """Notebook 06: ``budget(match, k, factor, max_depth)``, the most tokens that may be drafted."""
    cases = [
        (3, 8, 1.0, 24, 3, "a match of 3 tokens is trusted for 3"),
        (3, 8, 1.5, 24, 4, "part of a token cannot be drafted: round down"),
        (9, 4, 1.0, 24, 4, "k is the limit of every proposer"),
        (20, 8, 1.0, 24, 4, "match and draft share the depth"),
    ]
    for *case, want, story in cases:
        got = budget(*case)
        if got is None:
            return "Not yet: return a number of tokens."
        if got != want:
            return f"Not yet: {story}. budget{tuple(case)} should be {want}, not {got}."
    return "Right: the smallest of three limits, in whole tokens."


def check_vote(vote: Callable[[list[str]], tuple[str, float] | None]) -> str:
    """Notebook 06: ``vote(followers)``, the most common of them and its share of the votes."""
    for followers, want in ((["b", "a", "b"], ("b", 2 / 3)), (["x"], ("x", 1.0))):
        got = vote(list(followers))
        if got is None:
            return "Not yet: return a token and its share."
        if got[0] != want[0] or abs(got[1] - want[1]) > 1e-6:
            return (
                f"Not yet: vote({followers}) should be {want[0]!r} with {want[1]:.3g}, not {got}."
            )
    return "Right: the winner, and how sure the places are."


def check_tokens_to_read(tokens_to_read: Callable[[int, int], int | None]) -> str:
    """Notebook 08: ``tokens_to_read(k, accepted)`` is what a draft cache lacks after a step."""
    for k, accepted in ((4, 0), (4, 3), (4, 4), (1, 1)):
        got, want = tokens_to_read(k, accepted), 1 + (accepted == k)
        if got is None:
            return "Not yet: return a number."
        if got != want:
            story = (
                "the last drafted token was never read, and there is the bonus"
                if accepted == k
                else "what was refused is cut away, so only the new pending token is missing"
            )
            return f"Not yet: k = {k}, accepted {accepted}: {story}."
    return "Right: one token, or two after full acceptance."


def check_break_even_tau(with_cost: float | None, without_cost: float | None) -> str:
    """Notebook 08: tau that pays for a verification of 1.3 and 4 draft forwards of 0.25, or 0."""
    if with_cost is None or without_cost is None:
        return "Not yet: replace both None by numbers."
    if abs(without_cost - 1.3) > 0.005:
        return "Not yet: with free drafts a step still costs its verification."
    if abs(with_cost - 2.3) > 0.005:
        return "Not yet: a step costs one verification and four draft forwards."
    return "Right: tau must pay for V + k c, and plain decoding gets one token for 1."
