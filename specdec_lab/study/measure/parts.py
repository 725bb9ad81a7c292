"""The parts of ``python -m specdec_lab measure``: runs one, prints it and records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from specdec_lab.prompts import load_prompts
from specdec_lab.study import recordings
from specdec_lab.study.measure.cost import measure_cost, measure_overhead
from specdec_lab.study.measure.peers import DOMAINS, load_peer, measure_peers
from specdec_lab.study.measure.timing import machine_name

Say = Callable[[str], None]


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
