"""Checks of the exercises of notebook 00."""

from __future__ import annotations

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
