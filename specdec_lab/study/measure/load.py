"""What a plain step costs beside a busy process for each core, in times of a quiet one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specdec_lab import threads
from specdec_lab.decoding.decode import generate
from specdec_lab.study.stopwatch import Times, alternate

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

SETTLE = 0.3  # seconds until the system has spread the busy processes over the cores
# Ends by itself soon after the process that started it, even if that was killed.
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"


def measure_load(
    target: Target, ids: Sequence[int], max_new_tokens: int = 24, rounds: int = 5
) -> dict[str, object]:
    """Median seconds of a plain greedy step, ``quiet`` and ``loaded``, by turns; the median, lowest
    and highest of the rounds' ratios; how threads were told to wait.
    """

    def step() -> float:
        trace = generate(target, [ids], max_new_tokens=max_new_tokens).trace
        return (trace.total_seconds - trace.seconds["prefill"]) / trace.num_forwards

    def loaded() -> float:
        with busy_cores():
            return step()

    times = Times(alternate({"quiet": step, "loaded": loaded}, rounds))
    ratio = times.ratio("loaded", "quiet")
    return times.medians() | {
        "ratio": [ratio.median, ratio.low, ratio.high],
        "busy": threads.cores(),
        "waiting": {name: os.environ[name] for name in threads.WAIT if name in os.environ},
    }


def load_line(load: Mapping) -> str:
    """That in a sentence."""
    quiet, loaded = 1000 * load["quiet"], 1000 * load["loaded"]
    median, low, high = load["ratio"]
    return (
        f"A plain step takes {quiet:.1f} ms, and {loaded:.1f} ms beside {load['busy']} busy "
        f"processes, one for each core: {median:.2f} ({low:.2f}-{high:.2f}) times as long."
    )


@contextmanager
def busy_cores() -> Iterator[list[subprocess.Popen]]:
    """Keeps a process busy for each core inside a ``with``; they end with it, whatever happens."""
    command = [sys.executable, "-S", "-c", BUSY, str(os.getpid())]
    processes: list[subprocess.Popen] = []
    try:
        for _ in range(threads.cores()):
            processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        time.sleep(SETTLE)
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
