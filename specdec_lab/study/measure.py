"""Speed on this machine, side by side: what a forward of several rows costs, and ours beside the
peer.

Each part alternates its arms inside one run and reports medians, since a shared machine is only
good for ratios. ``python -m specdec_lab measure cost|peers`` writes
``data/measurements/<machine>/``.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.study import recordings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_lab.decoding.target import Target

ROWS = (1, 2, 5, 9, 17, 33)
DOMAINS = ("chat", "code", "quotation")
Say = Callable[[str], None]


def alternate(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What every arm returns in each round; within a round all arms run, one after the other."""
    results: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            results[name].append(arm())
    return results


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = perf_counter()
    work()
    return perf_counter() - start


def stopwatch(target: Target, context: int = 128, most_rows: int = 33) -> Callable[[int], float]:
    """A function that runs one whole forward of so many rows behind ``context`` tokens and returns
    its seconds.
    """
    cache = target.start(1, context + most_rows)
    tokens = torch.arange(context)[None] % target.vocab_size
    target.prefill(cache, tokens, torch.tensor([context]))
    pending = torch.tensor([1])

    def timed(rows: int) -> float:
        drafted = torch.ones(1, rows - 1, dtype=torch.long)
        draft = Draft(drafted, torch.tensor([rows - 1]))
        return seconds_of(lambda: target.score(cache, pending, draft))

    return timed


def measure_cost(
    target: Target, rows: Sequence[int] = ROWS, context: int = 128, rounds: int = 15
) -> dict[str, object]:
    """Median seconds of one forward over 1, 2, 5, ... rows behind ``context`` tokens, batch 1."""
    forward = stopwatch(target, context, max(rows))
    arms = {str(m): (lambda m=m: forward(m)) for m in rows}
    alternate(arms, 2)  # warm up
    seconds = {name: median(values) for name, values in alternate(arms, rounds).items()}
    return {
        "context": context,
        "rounds": rounds,
        "seconds": seconds,
        "cost": {name: value / seconds["1"] for name, value in seconds.items()},
    }


def measure_peers(
    target: Target,
    peer: PreTrainedModel,
    work: Mapping[str, list[list[int]]],
    say: Say,
    max_new_tokens: int = 64,
    k: int = 4,
    rounds: int = 5,
) -> dict[str, object]:
    """Tokens per second of ours and of transformers, plain and copying, on the same greedy work.

    ``work`` maps a domain to its prompts as token ids; ``say`` is told a line for each.
    """
    table = {}
    for domain, prompts in work.items():
        arms, texts = _arms(target, peer, prompts, max_new_tokens, k)
        alternate(arms, 1)  # warm up, and fill `texts`
        table[domain] = _speeds(alternate(arms, rounds), texts) | {"same_text": _same(texts)}
        say(_line(domain, table[domain]))
    return {"k": k, "max_new_tokens": max_new_tokens, "rounds": rounds, "domains": table}


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
    return {name: median(values) for name, values in alternate(arms, rounds).items()}


def _arms(
    target: Target, peer: PreTrainedModel, rows: list[list[int]], budget: int, k: int
) -> tuple[dict[str, Callable[[], float]], dict[str, list[list[int]]]]:
    """The four ways to do the same work, and where each leaves its tokens."""
    texts: dict[str, list[list[int]]] = {}
    ngram = load_proposer("ngram")

    def ours(name: str, proposer: object) -> float:
        texts[name] = []
        return seconds_of(
            lambda: [
                texts[name].extend(
                    generate(target, [ids], proposer, k=k, max_new_tokens=budget).tokens
                )
                for ids in rows
            ]
        )

    def theirs(name: str, **options: int) -> float:
        texts[name] = []
        return seconds_of(
            lambda: [texts[name].append(_peer_generate(peer, ids, budget, options)) for ids in rows]
        )

    return {
        "transformers": lambda: theirs("transformers"),
        "ours": lambda: ours("ours", None),
        "transformers_lookup": lambda: theirs("transformers_lookup", prompt_lookup_num_tokens=k),
        "ours_ngram": lambda: ours("ours_ngram", ngram),
    }, texts


def _peer_generate(
    peer: PreTrainedModel, ids: list[int], budget: int, options: dict[str, int]
) -> list[int]:
    prompt = torch.tensor([ids])
    with torch.inference_mode():
        whole = peer.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=budget,
            do_sample=False,
            **options,
        )
    return whole[0, len(ids) :].tolist()


def _speeds(seconds: Mapping[str, list[float]], texts: Mapping[str, list]) -> dict[str, object]:
    """Tokens per second by arm (median, and all rounds), and the ratios of interest."""
    speeds = {
        arm: [sum(map(len, texts[arm])) / value for value in values]
        for arm, values in seconds.items()
    }
    pairs = {
        "plain_over_transformers": ("ours", "transformers"),
        "ngram_over_lookup": ("ours_ngram", "transformers_lookup"),
        "ngram_over_own_plain": ("ours_ngram", "ours"),
        "lookup_over_own_plain": ("transformers_lookup", "transformers"),
    }
    ratios = {}
    for name, (one, other) in pairs.items():
        by_round = [a / b for a, b in zip(speeds[one], speeds[other], strict=True)]
        ratios[name] = {"median": median(by_round), "low": min(by_round), "high": max(by_round)}
    return {
        "tokens_per_second": {arm: median(values) for arm, values in speeds.items()},
        "rounds": speeds,
        "ratios": ratios,
    }


def _same(texts: Mapping[str, list[list[int]]]) -> dict[str, int]:
    """How many prompts each arm answered with exactly the tokens of transformers' plain greedy."""
    right = texts["transformers"]
    return {
        arm: sum(a == b for a, b in zip(answers, right, strict=True))
        for arm, answers in texts.items()
    }


def _line(domain: str, result: Mapping[str, Mapping]) -> str:
    speeds = ", ".join(f"{arm} {v:.1f}" for arm, v in result["tokens_per_second"].items())
    ratios = ", ".join(f"{name} {v['median']:.2f}" for name, v in result["ratios"].items())
    return f"{domain}: tokens/s {speeds}; {ratios}; same text {result['same_text']}"


def load_peer(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights as a transformers model, as shipped."""
    from transformers import AutoModelForCausalLM

    from specdec_lab.decoding.checkpoint import fetch

    return AutoModelForCausalLM.from_pretrained(fetch(), dtype=dtype).eval()


def machine_name() -> str:
    """A short name for this machine's folder: processor and number of cores."""
    cpu = recordings.provenance()["machine"]["cpu"]
    words = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") or platform.machine()
    return f"{words}-{torch.get_num_threads()}-threads"


def run(part: str, quick: bool, say: Say = print) -> Path:
    """Measure one part, print it, and record it; returns the file written."""
    from specdec_lab.decoding.checkpoint import load_target

    target = load_target()
    if part == "cost":
        result = measure_cost(target, rounds=5 if quick else 25)
        ids = load_prompts("chat")[0].ids(target)
        result["overhead"] = measure_overhead(target, ids, rounds=3 if quick else 5)
        say("cost of rows, one row = 1: " + _listed(result["cost"]))
        say("share of a plain step outside the forward: " + _listed(result["overhead"]))
    else:
        count, how = (1, {"max_new_tokens": 32, "rounds": 2}) if quick else (3, {})
        work = {d: [p.ids(target) for p in load_prompts(d)[:count]] for d in DOMAINS}
        result = measure_peers(target, load_peer(), work, say, **how)
    command = f"python -m specdec_lab measure {part}" + (" --quick" if quick else "")
    folder = f"data/measurements/{machine_name()}"
    threads = torch.get_num_threads()
    recordings.save(part, result, folder=folder, command=command, threads=threads)
    return recordings.output_folder(folder) / f"{part}.json"


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3g}" for name, value in values.items())
