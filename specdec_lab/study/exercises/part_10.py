"""Checks of the exercises of notebook 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Joint = Sequence[Sequence[float]]

PAIRS: tuple[Joint, ...] = (
    ((0.6, 0.0), (0.0, 0.4)),
    ((0.25, 0.25), (0.25, 0.25)),
    ((0.5, 0.1, 0.0), (0.0, 0.2, 0.2)),
)


def check_state_share(state_share: Callable[[int, int], float | None]) -> str:
    """Notebook 10: ``state_share(n, i)`` of the variance behind stage i of n is the state's."""
    for n, i in ((3, 1), (3, 3), (4, 2), (4, 0)):
        got, want = state_share(n, i), 0.5 ** (i / n)
        if got is None:
            return "Not yet: return a number."
        if abs(got - want) > 1e-6:
            return (
                f"Not yet: for n = {n}, i = {i} it is {want:.3g}, not {got:.3g}. Each stage leaves "
                "w_s² of the variance it is given, and w_s = 0.5 ** (0.5 / n)."
            )
    return "Right: 0.5 ** (i / n), so that behind the last stage half is left, whatever n."


def check_blind_head(chances: Callable[[Joint], tuple[float, float] | None]) -> str:
    """Notebook 10: ``chances(pairs)`` that a sampled second guess is accepted, for a head that does
    not know the first token and for one that does; ``pairs[a][b]`` is the law of two tokens.
    """
    for pairs in PAIRS:
        got, want = chances(pairs), (_blind(pairs), 1.0)
        if got is None:
            return "Not yet: return two numbers."
        if abs(got[1] - want[1]) > 1e-6:
            return "Not yet: a head that knows the first token and the law has q = p: what is left?"
        if abs(got[0] - want[0]) > 1e-6:
            return (
                f"Not yet: for {pairs} the blind head is accepted with {want[0]:.3g}, not "
                f"{got[0]:.3g}. Behind each first token a the target has p(b | a), the head the "
                "same q(b) everywhere; add up min(p, q), then take the mean over a."
            )
    return "Right: a blind head loses wherever the second token depends on the first."


def _blind(pairs: Joint) -> float:
    """The sum over a, b of min(p(a, b), p(a) q(b)), where q is the law of the second token."""
    second = [sum(column) for column in zip(*pairs, strict=True)]
    return sum(min(p, sum(row) * q) for row in pairs for p, q in zip(row, second, strict=True))
