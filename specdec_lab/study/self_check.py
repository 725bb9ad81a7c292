"""Does this machine have what the course needs? One sentence a finding, with what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from specdec_lab import threads

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

NEEDED = {  # package -> first version that will do, first that will not
    "torch": ((2, 6), (2, 14)),
    "transformers": ((5, 17), (6,)),
    "jupyterlab": ((4, 2), (5,)),
    "ipywidgets": ((8, 1), (9,)),
    "jupyterlab_widgets": ((3,), (4,)),
}
PYTHON = ((3, 11), (3, 14))
HELD = 0.3  # cores that other programs may hold before it is said
SETUP = "close JupyterLab and start it again with 'make lab'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``text`` says what to do when it is not well."""

    ok: bool
    text: str

    def __str__(self) -> str:
        return f"{'OK  ' if self.ok else 'LOOK'}  {self.text}"


def environment() -> list[Finding]:
    """Python and the packages: their versions and whether they are ones that the course knows."""
    return [_python(), *map(_package, NEEDED), *_threads()]


def model(target: Target) -> list[Finding]:
    """The loaded model: what it is, and whether its numbers depend on how many rows are read, or
    on how many threads work.
    """
    size = f"{target.num_layers} layers, {target.vocab_size:,} tokens, {target.dtype}"
    return [
        Finding(True, f"model {target.name}: {size} on {target.device}"),
        _rows(target),
        _one(target),
    ]


def _rows(target: Target) -> Finding:
    """A quick probe: five tokens in one forward, a prefill and a batch against single steps."""
    from specdec_lab.decoding.target import probe_rows

    results = probe_rows(target, widths=(2, 5), context=16)
    different = [case for case, same in results.items() if not same]
    if not different:
        return Finding(True, "one token or five at once: the same numbers, bit for bit")
    return Finding(
        False,
        f"the last digits of the model's numbers differ here ({', '.join(different)}): where two "
        "tokens are almost equally likely, a text may differ from the one stored; go on",
    )


def _one(target: Target) -> Finding:
    """The same of one thread against all of them."""
    from specdec_lab.decoding.target import probe_threads

    if probe_threads(target):
        return Finding(True, "one thread or all of them: the same numbers, bit for bit")
    return Finding(
        False,
        "the last digits of the model's numbers differ here between one thread and all of them: "
        "compare texts only where as many threads wrote them; go on",
    )


def _python() -> Finding:
    low, high = PYTHON
    here = sys.version_info[:2]
    text = f"Python {here[0]}.{here[1]}"
    if low <= here < high:
        return Finding(True, text)
    return Finding(False, f"{text}: install Python 3.11, 3.12 or 3.13, then {SETUP}")


def _package(name: str) -> Finding:
    low, high = NEEDED[name]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(False, f"{name} is missing: {SETUP}")
    if low <= _numbers(version) < high:
        return Finding(True, f"{name} {version}")
    wanted = ".".join(map(str, low)), ".".join(map(str, high))
    return Finding(False, f"{name} {version} is not from {wanted[0]} to below {wanted[1]}: {SETUP}")


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.13.0+cpu -> (2, 13, 0)."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:3] if part.isdigit())


def _threads() -> list[Finding]:
    import torch

    number, quota = torch.get_num_threads(), threads.cpu_quota()
    text = f"{number} {'thread' if number == 1 else 'threads'} for the model"
    problems = [*_settings(os.environ), *_quota(number, quota), *_others(threads.held_by_others())]
    return [Finding(True, text), *(Finding(False, problem) for problem in problems)]


def _settings(environ: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with how the threads were told to wait, and how many there should be."""
    for name in (*threads.WAIT, *threads.COUNT):
        if name in environ and not threads.understood(name, environ):
            yield f"{name}={environ[name]} says nothing to the threads: take it away, then {SETUP}"
    if not any(threads.understood(name, environ) for name in threads.WAIT):
        yield (
            "torch was there before specdec_lab, so a busy machine will be many times slower: "
            "restart the kernel and import specdec_lab first, or " + SETUP
        )


def _quota(number: int, quota: float | None) -> Iterator[str]:
    if quota is not None and number > max(1, quota):
        yield (
            f"{number} threads fight over {quota:g} CPUs, which is all this container may use: "
            f"set OMP_NUM_THREADS={max(1, int(quota))}, then {SETUP}"
        )


def _others(held: float) -> Iterator[str]:
    if held >= HELD:
        yield (
            f"other programs keep {held:.1f} cores busy now: all times will be too long, and one "
            "thread, torch.set_num_threads(1), may be quicker; close what you do not need"
        )
