"""What a forward of several rows costs, what a step spends outside it, and what load does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import load_prompts
from specdec_lab.study.measure.load import load_line, measure_load
from specdec_lab.study.measure.profile import measure_profile, profile_table
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.stopwatch import Spread, alternate, time_arms

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

ROWS = (1, 2, 5, 9, 17, 33)


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    rounds = {"rounds": 5, "overhead_rounds": 3} if quick else {"rounds": 25, "overhead_rounds": 5}
    return {"rows": list(ROWS), "context": 128, **rounds}


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """Forwards of several rows, what a step spends beside them, its profile, and it under load."""
    how = (settings["rows"], settings["context"], settings["rounds"])
    ids, few = load_prompts("chat")[0].ids(target), settings["overhead_rounds"]
    return {
        "rows": lambda: measure_cost(target, *how),
        "overhead": lambda: measure_overhead(target, ids, rounds=few),
        "profile": lambda: measure_profile(target, ids, rounds=few),
        "load": lambda: measure_load(target, ids, rounds=few),
    }


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded; older sittings have no ``load``."""
    beside = ("overhead", "profile", "load")
    return results["rows"] | {name: results[name] for name in beside if name in results}


def table(data: Mapping) -> str:
    """Milliseconds and cost of rows, shares of a step, its profile, and what load does to it."""
    spread = data["cost_rounds"]
    rows = [
        [name, 1000 * value, data["cost"][name], "-".join(f"{x:.2f}" for x in spread[name])]
        for name, value in data["seconds"].items()
    ]
    shares = ", ".join(f"{name} {value:.1%}" for name, value in data["overhead"].items())
    costs = as_table(("rows", "ms", "cost", "rounds"), rows)
    beside = f"A plain step spends beside its forward: {shares}."
    load = [load_line(data["load"])] if "load" in data else []
    return "\n\n".join([costs, beside, profile_table(data["profile"]), *load])


def measure_cost(
    target: Target, rows: Sequence[int] = ROWS, context: int = 128, rounds: int = 15
) -> dict[str, object]:
    """Median seconds of one forward over 1, 2, 5, ... rows behind ``context`` tokens, batch 1, and
    its cost in forwards of the first number of rows: the median of the rounds' ratios, and the
    lowest and highest of them (``cost_rounds``).
    """
    forward = forward_of(target, context, max(rows))
    times = time_arms({str(m): (lambda m=m: forward(m)) for m in rows}, rounds, warm_up=2)
    costs = {name: times.ratio(name, str(rows[0])) for name in times.seconds}
    return {
        "context": context,
        "rounds": rounds,
        "seconds": times.medians(),
        "cost": {name: cost.median for name, cost in costs.items()},
        "cost_rounds": {name: [cost.low, cost.high] for name, cost in costs.items()},
    }


def forward_of(target: Target, context: int = 128, most_rows: int = 33) -> Callable[[int], object]:
    """A function that runs one whole forward of so many rows behind ``context`` tokens."""
    device = target.device
    cache = target.start(1, context + most_rows)
    tokens = torch.arange(context, device=device)[None] % target.vocab_size
    target.prefill(cache, tokens, torch.tensor([context], device=device))
    pending = torch.tensor([1], device=device)

    def forward(rows: int) -> object:
        drafted = torch.ones(1, rows - 1, dtype=torch.long, device=device)
        return target.score(cache, pending, Draft(drafted, torch.tensor([rows - 1], device=device)))

    return forward


def measure_overhead(
    target: Target, ids: list[int], max_new_tokens: int = 64, rounds: int = 5
) -> dict[str, float]:
    """Share of a plain step that is not the target's forward: greedy, and at temperature 1."""

    def share(sampling: Sampling) -> float:
        run = generate(target, [ids], sampling=sampling, seed=0, max_new_tokens=max_new_tokens)
        spent = run.trace.seconds
        return 1 - spent["score"] / (run.trace.total_seconds - spent["prefill"])

    arms = {
        "greedy": lambda: share(Sampling()),
        "temperature_1": lambda: share(Sampling(temperature=1.0)),
    }
    return {name: Spread.of(values).median for name, values in alternate(arms, rounds).items()}
