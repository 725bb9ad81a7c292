"""One step beside the least time that reading the weights takes: where the rest of it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure.products import back_to_back, product_layers
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.roofline import product_weights
from specdec_lab.study.stopwatch import alternate, seconds_of, time_arms

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

DRAFT = {"method": "draft_model", "model": "int8"}  # drafts k tokens in every step
PARTS = ("propose", "products", "head", "rest", "verify", "host")


def measure_profile(
    target: Target, ids: Sequence[int], k: int = 4, max_new_tokens: int = 48, rounds: int = 5
) -> dict[str, object]:
    """Median seconds of a plain step and of one with k drafted tokens, by part, greedy; and the
    seconds that it takes to read all weights that a forward multiplies with.

    Of the forward, ``products`` and ``head`` are the layers' products and the head's, run by
    themselves; ``rest`` is what is left: attention, norms, positions, the cache. ``host`` is all
    that is in no other part.
    """
    weights = product_weights(target.model.arch)
    ways = {"plain": (None, 0), f"k = {k}": (load_proposer(DRAFT, target), k)}
    how = {"max_new_tokens": max_new_tokens, "rounds": rounds}
    return {
        "weight_bytes": weights * target.dtype.itemsize,
        "read_seconds": _read_seconds(weights, target, rounds),
        "steps": {name: _step(target, ids, *way, **how) for name, way in ways.items()},
    }


def _read_seconds(num_weights: int, target: Target, rounds: int) -> float:
    """Median seconds to add up as many numbers as a forward has weights."""
    numbers = torch.ones(num_weights, dtype=target.dtype, device=target.device)
    return time_arms({"read": numbers.sum}, rounds).of("read").median


def _step(
    target: Target,
    ids: Sequence[int],
    proposer: object,
    k: int,
    max_new_tokens: int,
    rounds: int,
) -> dict[str, float]:
    *layers, head = product_layers(target.model)

    def decode() -> dict[str, float]:
        trace = generate(target, [ids], proposer, k=k, max_new_tokens=max_new_tokens).trace
        return {part: value / trace.num_forwards for part, value in trace.seconds.items()}

    arms: dict[str, Callable[[], dict | float]] = {"decode": decode}
    for name, part in (("products", layers), ("head", [head])):
        work = back_to_back(part, 1 + k)
        arms[name] = lambda work=work: seconds_of(work)
    results = alternate(arms, rounds)
    steps = results.pop("decode")
    found = {name: median(values) for name, values in results.items()}
    found["rest"] = median(spent["score"] for spent in steps) - found["products"] - found["head"]
    for part, name in (("propose", "propose"), ("verify", "verify"), ("other", "host")):
        found[name] = median(spent.get(part, 0.0) for spent in steps)
    return {part: found[part] for part in PARTS} | {"step": sum(found[part] for part in PARTS)}


def profile_table(profile: Mapping) -> str:
    """Milliseconds by part, and the whole step over the time of reading the weights."""
    steps = profile["steps"]
    limit = 1000 * profile["read_seconds"]
    rows = [[part, *(1000 * step[part] for step in steps.values())] for part in (*PARTS, "step")]
    rows += [["reading all weights", *(limit for _ in steps)]]
    rows += [["step / reading", *(1000 * step["step"] / limit for step in steps.values())]]
    return as_table(("ms", *steps), rows)
