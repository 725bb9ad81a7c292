"""Where speculation stops paying: several requests at once, with and without drafts.

A forward over many rows is bound by arithmetic, not by reading weights, so that drafted tokens are
no longer nearly free. Requests are taken in groups of 1, 4 and 16 that start together, and every
group is finished before the next one starts; the same requests whatever the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.trace import Trace
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.measure.sweep import packed, unpacked
from specdec_lab.study.stopwatch import Spread, check_rounds, in_turn

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

METHODS = {"ngram": "ngram", "draft_model int8": {"method": "draft_model", "model": "int8"}}
DOMAINS = ("chat", "code", "json", "quotation")
PLAIN = "plain, k = 0"


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    much = {"prompts": 4, "max_new_tokens": 32, "rounds": 3}
    little = {"prompts": 1, "max_new_tokens": 12, "rounds": 3}
    return {
        "domains": list(DOMAINS),
        "batches": [1, 4] if quick else [1, 4, 16],
        "ks": [2, 4],
        "methods": METHODS,
        **(little if quick else much),
    }


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """A cell for each batch size and round: plain decoding and every method at every k, in turn."""
    ways = _ways(target, settings)
    prompts = _prompts(target, settings)
    for way in ways.values():  # warm up
        _decode(target, prompts[:2], 2, 4, *way)

    def cell(batch: int, number: int) -> dict:
        budget = settings["max_new_tokens"]
        found = {
            way: _decode(target, prompts, batch, budget, *ways[way])
            for way in in_turn(ways, number)
        }
        return {"batch": batch, "round": number, "ways": {way: found[way] for way in ways}}

    return {
        f"batch {batch}, round {number + 1}": (lambda b=batch, n=number: cell(b, n))
        for number in range(check_rounds(settings["rounds"]))
        for batch in settings["batches"]
    }


def _ways(target: Target, settings: Mapping) -> dict[str, tuple[object, int]]:
    """Name -> proposer and k, plain decoding first."""
    ways: dict[str, tuple[object, int]] = {PLAIN: (None, 0)}
    for label, config in settings["methods"].items():
        proposer = load_proposer(config, target)
        ways |= {f"{label}, k = {k}": (proposer, k) for k in settings["ks"]}
    return ways


def _prompts(target: Target, settings: Mapping) -> list[list[int]]:
    """The requests as token ids, the domains taking turns, so that every group is mixed."""
    by_domain = [load_prompts(d)[: settings["prompts"]] for d in settings["domains"]]
    return [prompt.ids(target) for group in zip(*by_domain, strict=True) for prompt in group]


def _decode(
    target: Target,
    prompts: Sequence[list[int]],
    batch: int,
    max_new_tokens: int,
    proposer: object,
    k: int,
) -> list[dict]:
    """The packed trace of every group, greedy."""
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    how = {"k": k, "max_new_tokens": max_new_tokens}
    return [packed(generate(target, group, proposer, **how).trace) for group in groups]


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: metrics of every way by batch size, medians over the rounds."""
    table = {}
    for batch in settings["batches"]:
        rounds = [result["ways"] for result in results.values() if result["batch"] == batch]
        speeds = {
            way: [_pooled(ways[way]).tokens_per_second for ways in rounds] for way in rounds[0]
        }
        table[str(batch)] = {
            way: _metrics([ways[way] for ways in rounds], speeds[way], speeds[PLAIN])
            for way in rounds[0]
        }
    return dict(settings) | {"batches": table}


def _metrics(
    rounds: Sequence[list[dict]], speeds: Sequence[float], plain: Sequence[float]
) -> dict[str, object]:
    """One way of decoding at one batch size; latency is from the start of a request's group."""
    pooled = [_pooled(groups) for groups in rounds]
    speedup = Spread.of(ours / theirs for ours, theirs in zip(speeds, plain, strict=True))
    waits = [[row[-1].at for row in trace.rows] for trace in pooled]
    return {
        "num_requests": len(pooled[0].rows),
        "num_tokens": pooled[0].num_tokens,
        "tokens_per_second": median(speeds),
        "speedup": speedup.median,
        "speedup_rounds": [speedup.low, speedup.high],
        "latency_median": median(float(np.median(wait)) for wait in waits),
        "latency_p90": median(float(np.quantile(wait, 0.9)) for wait in waits),
        "ttft": median(trace.ttft for trace in pooled),
        "itl": median(trace.itl for trace in pooled),
        "tau": pooled[0].tau,
        "draft_coverage": pooled[0].draft_coverage,
        "step_seconds": sum(t.total_seconds - t.seconds["prefill"] for t in pooled)
        / sum(t.num_forwards for t in pooled),
    }


def _pooled(groups: Sequence[Mapping]) -> Trace:
    return Trace.pool(map(unpacked, groups))


def table(data: Mapping) -> str:
    """A line for each batch size and way; the speed-up is over k = 0 of the same batch size."""
    head = ("batch", "method", "tokens/s", "speed-up", "rounds", "latency s", "p90 s")
    rows = [
        [
            *(batch, way, found["tokens_per_second"], found["speedup"]),
            "{:.2f}-{:.2f}".format(*found["speedup_rounds"]),
            *(found[name] for name in ("latency_median", "latency_p90", "ttft")),
            *(1000 * found["itl"], found["tau"], 1000 * found["step_seconds"]),
        ]
        for batch, ways in data["batches"].items()
        for way, found in ways.items()
    ]
    return as_table((*head, "ttft s", "itl ms", "tau", "step ms"), rows)
