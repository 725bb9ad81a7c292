"""A stock Llama draft for a comparison: the first layers of the target as a model of their own.

Both transformers (``assistant_model``) and our `draft_model` load it, with the same weights. It is
weak: its last layer was never meant to be the last one, and nothing was trained. So it says how two
engines treat the same draft, and nothing about what a good draft would bring.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from specdec_lab.decoding.store import MANIFEST, Report, cache_folder, prepared, to_stderr


def early_exit_draft(model: Path, num_layers: int = 4, report: Report = to_stderr) -> Path:
    """The folder of a checkpoint with the first ``num_layers`` layers of the one in ``model``, its
    final norm, head and tokenizer; written to the user's cache once.

    Raises ValueError if the model has no more layers than that.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    depth = config["num_hidden_layers"]
    if not 0 < num_layers < depth:
        raise ValueError(f"num_layers must lie between 1 and {depth - 1}, not {num_layers}.")
    folder = cache_folder() / f"{model.name}-first-{num_layers}-layers"

    def build(scratch: Path) -> Path:
        draft = scratch / "draft"
        shutil.copytree(model, draft, ignore=shutil.ignore_patterns("*.safetensors", MANIFEST))
        short = config | {"num_hidden_layers": num_layers}
        (draft / "config.json").write_text(json.dumps(short, indent=1), encoding="utf-8")
        weights = {}
        for file in sorted(model.glob("*.safetensors")):
            kept = {n: w for n, w in load_file(file).items() if _layer(n) < num_layers}
            weights |= kept
        save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
        return draft

    return prepared(folder, build, report)


def _layer(name: str) -> int:
    """The layer that a weight belongs to, -1 for those outside of the layers."""
    found = re.search(r"\.layers\.(\d+)\.", name)
    return int(found[1]) if found else -1
