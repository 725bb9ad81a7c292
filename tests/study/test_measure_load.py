"""A step beside busy processes: they come, they all end, whatever happens. No clock is tested.

pytest tests/study/test_measure_load.py
"""

import subprocess
import sys

import pytest
import torch

from specdec_lab import threads
from specdec_lab.study.measure import load
from toys import random_target


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Nobody waits for the system, and two cores are busy."""
    monkeypatch.setattr(load, "SETTLE", 0.0)
    monkeypatch.setattr(threads, "cores", lambda: 2)


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, ValueError])
def test_busy_processes_end_whatever_happens(end):
    try:
        with load.busy_cores() as processes:
            assert [process.poll() for process in processes] == [None, None]
            if end:
                raise end
    except (KeyboardInterrupt, ValueError):
        pass
    assert None not in [process.poll() for process in processes]


def test_those_that_were_started_end_when_another_cannot(monkeypatch):
    started = []

    def second_fails(*args, **options):
        if started:
            raise OSError("no process left")
        started.append(real(*args, **options))
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", second_fails)
    with pytest.raises(OSError, match="no process left"), load.busy_cores():
        pass
    assert started[0].poll() is not None


def test_a_busy_process_outlives_nobody_who_was_killed():
    """Its parent says its number and is killed; the reader's end of the pipe closes with both."""
    code = (
        "import os, signal, subprocess, sys\n"
        "from specdec_lab.study.measure.load import BUSY\n"
        "subprocess.Popen([sys.executable, '-S', '-c', BUSY, str(os.getpid())])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)


def test_quiet_and_loaded_take_turns(monkeypatch):
    target = random_target(dtype=torch.float32)
    result = load.measure_load(target, [1, 2, 3], max_new_tokens=4, rounds=3)
    assert result["quiet"] > 0
    assert result["loaded"] > 0
    median, low, high = result["ratio"]
    assert low <= median <= high
    assert result["busy"] == 2
    assert "2 busy processes" in load.load_line(result)
