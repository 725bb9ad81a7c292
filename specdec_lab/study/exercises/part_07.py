"""Checks of the exercises of notebook 07."""

from __future__ import annotations

from collections.abc import Callable


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
