"""From the chances of `forced_drafts` to steps: how many the loop takes to write a known text.

The loop stands at a place of the text, takes some drafted tokens and one more, and stands further
on. Where it stands is a Markov chain on the places, as each chance is given the whole text; so one
pass over the text gives the expected number of steps exactly. Greedy, all chances are 0 or 1 and
the pass is the way that real decoding goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Steps:
    """Expected numbers for one text: ``steps``, and by position in the draft how many tokens were
    ``judged`` (those before them were taken) and ``accepted``.
    """

    steps: float
    judged: list[float]
    accepted: list[float]


def count_steps(
    chances: Sequence[Sequence[float]], drafted: Sequence[int], k: int, ended: bool
) -> Steps:
    """What writing a text of ``len(chances)`` tokens takes, with at most ``k`` drafted a step.

    ``chances[i][d]`` is that of drafted token d of the step at place i, of ``drafted[i]`` tokens.
    A text that ``ended`` by an end token may have all of it drafted; else it was cut by the budget,
    and a step drafts one token less than is left of it.
    """
    length = len(chances)
    visits = [1.0] + [0.0] * length  # expected number of times that the loop stands at a place
    judged, accepted = [0.0] * k, [0.0] * k
    for place in range(length):
        room = length - place - (0 if ended else 1)
        here = visits[place]
        for depth in range(min(k, drafted[place], room)):
            chance = chances[place][depth]
            judged[depth] += here
            accepted[depth] += here * chance
            visits[min(place + depth + 1, length)] += here * (1 - chance)
            here *= chance
        taken = min(k, drafted[place], room)
        visits[min(place + taken + 1, length)] += here
    return Steps(sum(visits[:length]), judged, accepted)
