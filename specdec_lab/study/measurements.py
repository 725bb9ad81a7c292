"""Reads what ``python -m specdec_lab measure`` recorded, on every machine that it was run on."""

from __future__ import annotations

import json
import platform
import re
from typing import TYPE_CHECKING

from specdec_lab.study import recordings

if TYPE_CHECKING:
    import torch

FOLDER = "data/measurements"


def measured(part: str) -> dict[str, dict]:
    """The recorded data of a part such as "cost", by the name of the machine; {} if there is none.

    A reader's own recordings stand beside those of the course, whose machine comes first.
    """
    folders = (recordings.PROJECT / FOLDER, recordings.output_folder(FOLDER))
    files = {path.parent.name: path for folder in folders for path in folder.glob(f"*/{part}.json")}
    first = reference_machine()
    return {
        machine: json.loads(files[machine].read_text(encoding="utf-8"))["data"]
        for machine in sorted(files, key=lambda machine: (machine != first, machine))
    }


def reference_machine() -> str | None:
    """The name of the machine that wrote the stored outputs of the notebooks; None if unknown."""
    path = recordings.PROJECT / FOLDER / "reference.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return f"{words(found['cpu'])}-{found['cores']}-threads"


def machine_name(device: torch.device | str = "cpu") -> str:
    """A short name for this machine's folder: processor and threads, or the accelerator."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return words(torch.cuda.get_device_name(device))
    cpu = recordings.provenance()["machine"]["cpu"]
    return f"{words(cpu) or platform.machine()}-{torch.get_num_threads()}-threads"


def words(name: str) -> str:
    """A name of hardware as part of a folder's name: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
