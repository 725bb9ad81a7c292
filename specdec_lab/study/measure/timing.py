"""Clocks: one call, one forward of several rows, and arms that take turns."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.records import Draft
from specdec_lab.study import recordings
from specdec_lab.study.measurements import words

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target


def alternate(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What every arm returns in each round; within a round all arms run, one after the other."""
    results: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            results[name].append(arm())
    return results


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call, on an accelerator until the last of its work is done."""
    finish_all()
    start = perf_counter()
    work()
    finish_all()
    return perf_counter() - start


def finish_all() -> None:
    """Wait for what an accelerator was given to do; nothing where none is in use."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def stopwatch(target: Target, context: int = 128, most_rows: int = 33) -> Callable[[int], float]:
    """A function that runs one whole forward of so many rows behind ``context`` tokens and returns
    its seconds.
    """
    device = target.device
    cache = target.start(1, context + most_rows)
    tokens = torch.arange(context, device=device)[None] % target.vocab_size
    target.prefill(cache, tokens, torch.tensor([context], device=device))
    pending = torch.tensor([1], device=device)

    def timed(rows: int) -> float:
        drafted = torch.ones(1, rows - 1, dtype=torch.long, device=device)
        draft = Draft(drafted, torch.tensor([rows - 1], device=device))
        return seconds_of(lambda: target.score(cache, pending, draft))

    return timed


def machine_name(device: torch.device | str = "cpu") -> str:
    """A short name for this machine's folder: processor and threads, or the accelerator."""
    device = torch.device(device)
    if device.type == "cuda":
        return words(torch.cuda.get_device_name(device))
    cpu = recordings.provenance()["machine"]["cpu"]
    return f"{words(cpu) or platform.machine()}-{torch.get_num_threads()}-threads"
