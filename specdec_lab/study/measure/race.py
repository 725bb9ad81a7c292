"""A race: several programs do the same greedy work in turn, and every text is compared.

A *cell* is one round of one domain, in which all arms run one after the other; so load on the
machine meets all of them, and ratios are taken within a round. A race can stop between cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING

from specdec_lab.prompts import load_prompts
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.stopwatch import Spread, check_rounds, clocked, in_turn

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

WARM_UP = 8  # tokens that every arm writes before a cell is timed
Pairs = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Heat:
    """What one arm did in one round: wall seconds, new token ids of every prompt, and how many
    forward passes of the target that took (None where that cannot be counted).
    """

    seconds: float
    tokens: list[list[int]]
    forwards: int | None = None


Arm = Callable[[list[list[int]], int], Heat]  # prompts as token ids, new tokens of each at most


def timed(work: Callable[[], tuple[list[list[int]], int | None]]) -> Heat:
    """Runs ``work``, which returns tokens and forward passes, under the clock."""
    seconds, (tokens, forwards) = clocked(work)
    return Heat(seconds, tokens, forwards)


def cells(
    arms: Mapping[str, Arm], target: Target, settings: Mapping
) -> dict[str, Callable[[], dict]]:
    """One cell a round and domain, by the names "chat 1", "code 1", ..., "chat 2", ...; ValueError
    for fewer than three rounds.
    """

    def cell(domain: str, number: int) -> dict:
        prompts = [p.ids(target) for p in load_prompts(domain)[: settings["prompts"]]]
        return run_round(arms, prompts, settings["max_new_tokens"], number)

    return {
        f"{domain} {number + 1}": (lambda domain=domain, number=number: cell(domain, number))
        for number in range(check_rounds(settings["rounds"]))
        for domain in settings["domains"]
    }


def run_round(
    arms: Mapping[str, Arm], prompts: list[list[int]], budget: int, number: int = 0
) -> dict[str, dict]:
    """Seconds, tokens and forward passes of every arm, after a short warm-up; rounds of an odd
    number go backwards.
    """
    for arm in arms.values():
        arm(prompts[:1], WARM_UP)
    heats = {name: arms[name](prompts, budget) for name in in_turn(arms, number)}
    return {
        field: {name: getattr(heats[name], field) for name in arms}
        for field in ("seconds", "tokens", "forwards")
    }


def summary(
    settings: Mapping, results: Mapping[str, dict], pairs: Pairs, right: str
) -> dict[str, dict]:
    """What `domain_summary` says of every domain."""
    return {
        domain: domain_summary(
            [results[f"{domain} {number + 1}"] for number in range(settings["rounds"])],
            pairs,
            right,
        )
        for domain in settings["domains"]
    }


def domain_summary(rounds: Sequence[Mapping], pairs: Pairs, right: str) -> dict[str, object]:
    """The rounds of one domain:

    * ``tokens_per_second``: arm -> median; ``rounds``: arm -> tokens per second of each round;
    * ``tokens_per_forward``: arm -> new tokens per forward pass of the target, or None;
    * ``ratios``: name -> median, low and high of the speed of an arm over that of another, taken
      round by round, for each of ``pairs``; arms that missed a round are left out;
    * ``prompts``: how many there were; ``same_text``: arm -> how many of them it answered in every
      round with exactly the tokens of the arm ``right``; ``same_tokens``: arm -> the share of
      ``right``'s tokens that it wrote before the first difference, lowest round.
    """
    arms = [arm for arm in rounds[0]["seconds"] if all(arm in cell["seconds"] for cell in rounds)]
    speeds = {arm: [_speed(cell, arm) for cell in rounds] for arm in arms}
    return {
        "tokens_per_second": {arm: median(values) for arm, values in speeds.items()},
        "rounds": speeds,
        "tokens_per_forward": {arm: _per_forward(rounds[0], arm) for arm in arms},
        "ratios": dict(_ratios(speeds, pairs)),
        "prompts": len(rounds[0]["tokens"][right]),
        "same_text": {arm: min(_equal(cell, arm, right) for cell in rounds) for arm in arms},
        "same_tokens": {arm: min(_shared(cell, arm, right) for cell in rounds) for arm in arms},
    }


def table(domains: Mapping[str, Mapping]) -> str:
    """Speeds by arm and domain, then ratios with the lowest and the highest round."""
    arms = dict.fromkeys(arm for result in domains.values() for arm in result["rounds"])
    speeds = [
        [arm, *(result["tokens_per_second"].get(arm) for result in domains.values())]
        for arm in arms
    ]
    ratios = [
        [domain, name, ratio["median"], ratio["low"], ratio["high"]]
        for domain, result in domains.items()
        for name, ratio in result["ratios"].items()
    ]
    return "\n\n".join(
        (
            as_table(("tokens/s", *domains), speeds),
            as_table(("domain", "ratio", "median", "low", "high"), ratios),
            _text_line(domains),
        )
    )


def _speed(cell: Mapping, arm: str) -> float:
    return sum(map(len, cell["tokens"][arm])) / cell["seconds"][arm]


def _per_forward(cell: Mapping, arm: str) -> float | None:
    forwards = cell["forwards"][arm]
    return sum(map(len, cell["tokens"][arm])) / forwards if forwards else None


def _ratios(speeds: Mapping[str, list[float]], pairs: Pairs) -> Iterator[tuple[str, dict]]:
    for name, (one, other) in pairs.items():
        if one in speeds and other in speeds:
            pairs_of_rounds = zip(speeds[one], speeds[other], strict=True)
            yield name, asdict(Spread.of(a / b for a, b in pairs_of_rounds))


def _equal(cell: Mapping, arm: str, right: str) -> int:
    texts = zip(cell["tokens"][arm], cell["tokens"][right], strict=True)
    return sum(a == b for a, b in texts)


def _shared(cell: Mapping, arm: str, right: str) -> float:
    """Share of the right tokens that come before the first difference."""
    texts = zip(cell["tokens"][arm], cell["tokens"][right], strict=True)
    same = [takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)) for a, b in texts]
    return sum(len(list(run)) for run in same) / sum(map(len, cell["tokens"][right]))


def _text_line(domains: Mapping[str, Mapping]) -> str:
    """Which arms wrote another text than the right one, if any."""
    other = [
        f"{arm} on {result['prompts'] - same} of {result['prompts']} {domain} prompts"
        for domain, result in domains.items()
        for arm, same in result["same_text"].items()
        if same < result["prompts"]
    ]
    return "Another text: " + ", ".join(other) + "." if other else "All texts are the same."
