"""What a proposal costs: each method inside the loop, suffix decoding by the length of its history,
and how much of a draft model's time is arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.suffix import Suffix
from specdec_lab.study.measure.cells import distinct_methods
from specdec_lab.study.measure.products import back_to_back, product_layers
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.measure.sweep import what_is_missing
from specdec_lab.study.stopwatch import Spread, alternate, seconds_of, time_arms

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target
    from specdec_lab.proposers.base import Proposer

HISTORIES = (0, 1_000, 10_000, 100_000, 1_000_000)
VOCABULARY = 3_000  # different tokens in the made-up histories: places that match are many
ROW = 512  # tokens of the row that asks


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    much = {"max_new_tokens": 64, "rounds": 3, "calls": 100, "histories": list(HISTORIES)}
    little = {"max_new_tokens": 16, "rounds": 3, "calls": 10, "histories": list(HISTORIES[:4])}
    methods = {cell.label: cell.config for cell in distinct_methods()}
    return {"methods": methods, "k": 4, "suffix_k": 8, **(little if quick else much)}


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """A cell for each method of the file of cells, and one for each history of suffix decoding."""
    calls, suffix_k = settings["calls"], settings["suffix_k"]
    methods = {
        label: lambda config=config: measure_method(target, config, settings)
        for label, config in settings["methods"].items()
    }
    histories = {
        f"history of {size}": lambda size=size: measure_history(size, suffix_k, calls)
        for size in settings["histories"]
    }
    return methods | histories


def measure_method(target: Target, config: object, settings: Mapping) -> dict[str, object]:
    """Milliseconds of a proposal and of a drafted token in the loop (one chat prompt, greedy).

    Where the proposer has a draft model, also those of its products alone: the same layers run
    back to back on one row. What is left is spent outside of them. Without weights, what is
    ``missing``.
    """
    try:
        proposer = load_proposer(config, target)
    except OSError as error:
        return {"missing": what_is_missing(error)}
    k = settings["k"]
    ids = load_prompts("chat")[0].ids(target)

    def proposal() -> float:
        run = generate(target, [ids], proposer, k=k, max_new_tokens=settings["max_new_tokens"])
        return run.trace.seconds["propose"] / run.trace.num_forwards

    (seconds,) = alternate({"proposal": proposal}, settings["rounds"]).values()
    spread = Spread.of(1000 * value for value in seconds)
    ms, products = spread.median, _milliseconds_of_products(proposer, settings["calls"])
    found = {"k": k, "proposal_ms": ms, "proposal_rounds": [spread.low, spread.high]}
    found |= {"token_ms": ms / k, "products_ms": products}
    return found | {"outside_ms": None if products is None else ms / k - products}


def _milliseconds_of_products(proposer: Proposer, calls: int) -> float | None:
    """All products that one drafted token takes, one after the other on one row; None without a
    draft model.
    """
    model = getattr(getattr(proposer, "model", None), "model", None)
    layers = product_layers(model) if isinstance(model, nn.Module) else []
    if not layers:
        return None
    times = time_arms({"products": back_to_back(layers, 1)}, calls)
    return times.of("products", "ms").median


def measure_history(num_tokens: int, k: int, calls: int) -> dict[str, object]:
    """Milliseconds of one proposal of suffix decoding with so many tokens of earlier texts, and
    seconds of the first one, which puts them in order. The row grows by a token each time.
    """
    generator = torch.Generator().manual_seed(0)
    text = _made_up(num_tokens + ROW, generator)
    suffix = Suffix(history_tokens=max(num_tokens, 1), remember_outputs=False)
    suffix.remember(text[:num_tokens])
    suffix.start(1, ROW)
    # The row copies a stretch of the history, so that something matches.
    row = (text[num_tokens // 2 :] if num_tokens else text)[None, :ROW]  # (1, ROW)
    randomness = CounterRandomness(torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    one = torch.ones(1, dtype=torch.long)

    def propose(length: int) -> float:
        context = Context(row, one * length, one)
        return seconds_of(lambda: suffix.propose(context, k, Sampling(), randomness))

    suffix.observe(row[:, : ROW - calls - 1], one * (ROW - calls - 1), {})
    times = []
    for length in range(ROW - calls, ROW + 1):
        times.append(propose(length))
        suffix.observe(row[:, length - 1 : length], one, {})
    first, *later = times
    ms = 1000 * median(later)
    return {"tokens": num_tokens, "k": k, "proposal_ms": ms, "first_seconds": first}


def _made_up(num_tokens: int, generator: torch.Generator) -> torch.Tensor:
    """Token ids with few frequent and many rare ones, (num_tokens,)."""
    spread = torch.rand(num_tokens, generator=generator, dtype=torch.float64) ** 3
    return (spread * VOCABULARY).long()


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: methods by label, those without weights apart, and histories by size."""
    missing = {
        label: results[label]["missing"]
        for label in settings["methods"]
        if "missing" in results[label]
    }
    methods = {label: results[label] for label in settings["methods"] if label not in missing}
    histories = [results[f"history of {size}"] for size in settings["histories"]]
    how = {name: settings[name] for name in ("k", "suffix_k", "max_new_tokens", "rounds", "calls")}
    return how | {"methods": methods, "missing": missing, "histories": histories}


def table(data: Mapping) -> str:
    """Methods in the loop, then suffix decoding by history."""
    methods = [
        [label, *(found[name] for name in ("proposal_ms", "token_ms", "products_ms", "outside_ms"))]
        for label, found in data["methods"].items()
    ]
    histories = [
        [str(found["tokens"]), found["proposal_ms"], found["first_seconds"]]
        for found in data["histories"]
    ]
    head = ("method", "proposal ms", "a token ms", "its products ms", "outside ms")
    second = as_table(("history of suffix", "proposal ms", "first one s"), histories)
    missing = [f"{label}: {why}" for label, why in data["missing"].items()]
    return "\n\n".join([as_table(head, methods), *missing, second])
