"""Checks of the exercises of notebook 03."""

from __future__ import annotations

from collections.abc import Callable


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
