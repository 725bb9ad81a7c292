"""Does this machine have what the course needs? One sentence a finding, with what to do."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from specdec_lab.decoding.target import Target

NEEDED = {  # package -> first version that will do, first that will not
    "torch": ((2, 6), (2, 14)),
    "transformers": ((5, 17), (6,)),
    "jupyterlab": ((4, 2), (5,)),
    "ipywidgets": ((8, 1), (9,)),
    "jupyterlab_widgets": ((3,), (4,)),
}
PYTHON = ((3, 11), (3, 14))
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
    return [_python(), *map(_package, NEEDED), _threads()]


def model(target: Target) -> list[Finding]:
    """The loaded model: what it is, and whether its numbers depend on how many rows are read."""
    size = f"{target.num_layers} layers, {target.vocab_size:,} tokens, {target.dtype}"
    return [Finding(True, f"model {target.name}: {size} on {target.device}"), _rows(target)]


def rows_are_bit_identical(target: Target, num_drafted: int = 4) -> bool:
    """Whether scoring a chain at once gives, bit for bit, the logits of one token at a time.

    A quick probe with one draft of ``num_drafted`` tokens: where it holds, greedy text with and
    without speculation is the same string; elsewhere near-ties may fall to the other side.
    """
    import torch

    length = 8
    tokens = torch.arange(length + num_drafted, device=target.device)[None] % target.vocab_size
    together = _logits(target, tokens, length)  # (1, N+1, V)
    alone = [_logits(target, tokens[:, : length + i], length + i) for i in range(num_drafted + 1)]
    return torch.equal(together, torch.cat(alone, 1))


def _logits(target: Target, tokens: Tensor, length: int) -> Tensor:
    """Scores of what follows the first ``length`` of ``tokens`` (1, L), the rest as the draft."""
    import torch

    from specdec_lab.decoding.records import Draft

    draft = tokens[:, length:]
    count = torch.full_like(tokens[:, 0], draft.shape[1])
    cache = target.start(1, tokens.shape[1] + 1)
    target.prefill(cache, tokens[:, : length - 1], torch.full_like(count, length - 1))
    return target.score(cache, tokens[:, length - 1], Draft(draft, count)).logits


def _rows(target: Target) -> Finding:
    if rows_are_bit_identical(target):
        return Finding(True, "one row or five: the model's numbers are the same, bit for bit")
    return Finding(
        False,
        "one row or five: the last bits of the model's numbers differ here. Where two tokens are "
        "almost equally likely, greedy text may differ from the stored one; nothing else changes",
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


def _threads() -> Finding:
    import torch

    threads = torch.get_num_threads()
    return Finding(True, f"{threads} {'thread' if threads == 1 else 'threads'} for the model")
