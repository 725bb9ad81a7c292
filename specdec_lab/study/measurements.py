"""Reads what ``python -m specdec_lab measure`` recorded, on every machine that it was run on."""

from __future__ import annotations

import json

from specdec_lab.study import recordings

FOLDER = "data/measurements"


def measured(part: str) -> dict[str, dict]:
    """The recorded data of a part such as "cost", by the name of the machine; {} if there is none.

    A reader's own recordings stand beside those of the course.
    """
    folders = (recordings.PROJECT / FOLDER, recordings.output_folder(FOLDER))
    files = {path.parent.name: path for folder in folders for path in folder.glob(f"*/{part}.json")}
    return {
        machine: json.loads(path.read_text(encoding="utf-8"))["data"]
        for machine, path in sorted(files.items())
    }
