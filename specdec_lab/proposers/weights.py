"""Weights of trained drafters: small safetensors files that say what they were trained for.

What a drafter shares with its target (embedding, head) is not in them, and matrices are kept in few
bits (`storage.py`). A file for another shape or tokenizer is refused; one for another model of that
shape only warns, as exactness never depends on it.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from specdec_lab.decoding.target import Target
from specdec_lab.proposers.storage import SCALE, STORAGES, loaded, shape_of, stored

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FOLDER = Path(__file__).resolve().parents[2] / "data" / "weights"
SAMPLED_ROWS = 16  # of the embedding, one in so many goes into a fingerprint


def shipped(method: str) -> Path:
    """The weights of a method that came with the project.

    Raises OSError that names the command to train them when there are none.
    """
    path = FOLDER / f"{method}.safetensors"
    if not path.is_file():
        raise OSError(
            f"There are no trained weights for {method} at {path}: train them with "
            f"'python -m specdec_lab train {method}', or name a file with the option weights."
        )
    return path


def save_weights(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], storage: str = "float16"
) -> None:
    """Write ``tensors`` (matrices in ``storage``, everything else in float16 or as whole numbers)
    with ``metadata``, replacing an older file only when the new one is whole.
    """
    if storage not in STORAGES:
        raise ValueError(f"storage must be one of {', '.join(STORAGES)}, not {storage!r}.")
    written: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        written |= stored(name, tensor.detach().cpu(), storage)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    save_file(written, part, {**metadata, "storage": storage})
    part.replace(path)


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, floating ones in float32, and its metadata; OSError if damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, FileNotFoundError) as error:
        raise OSError(
            f"The weights at {path} can't be read ({error}): train them again."
        ) from error
    return {n: loaded(n, tensors) for n in tensors if not n.endswith(SCALE)}, metadata


def card_of(path: Path) -> dict[str, float | None]:
    """What it took to have the weights of a file, from its header alone: `measure decode` shows it.

    ``parameters`` counts the numbers that training found, not what is the target's (embedding, rows
    of the head); ``megabytes`` (10^6 bytes) is the size of the file; ``training_tokens`` are those
    of the texts, each counted once, ``tokens_seen`` those learned from, each as often as it was
    read; ``training_minutes`` are without evaluation. None for what an older file does not say.
    """
    with safe_open(path, framework="pt") as file:
        said = dict(file.metadata() or {})
        trained = set(file.keys()) - {"draft_to_target"}
        slices = [file.get_slice(n) for n in trained if not n.endswith(SCALE)]
        shapes = [shape_of(s.get_dtype(), s.get_shape()) for s in slices]
    return {
        "parameters": sum(map(math.prod, shapes)),
        "megabytes": path.stat().st_size / 1e6,
        "training_tokens": _number(said.get("tokens")),
        "tokens_seen": _number(said.get("places")),
        "training_minutes": _number(said.get("minutes")),
    }


def shipped_hashes() -> dict[str, str]:
    """A fingerprint of every weights file that came with the project, by its name: what was
    measured with it does not hold for another one.
    """
    return {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(FOLDER.glob("*.safetensors"))
    }


def _number(text: str | None) -> float | None:
    """A number that metadata holds as text, whole where it is."""
    if text is None:
        return None
    return int(text) if text.isdecimal() else float(text)


# --- What a file was trained for ------------------------------------------------------------------


def describe_target(target: Target) -> dict[str, str]:
    """The metadata that `check_fits` compares."""
    return {
        "target": target.name,
        "target_hash": target_hash(target),
        "tokenizer_hash": tokenizer_hash(target.tokenizer),
        "hidden_size": str(target.hidden_size),
        "vocab_size": str(target.vocab_size),
    }


def check_fits(path: Path, metadata: Mapping[str, str], target: Target) -> None:
    """ValueError when the weights cannot draft for ``target``; RuntimeWarning when they were
    trained for other weights of that shape.
    """
    ours = describe_target(target)
    for key in ("hidden_size", "vocab_size", "tokenizer_hash"):
        theirs = metadata.get(key)
        if theirs != ours[key] and "" not in (theirs, ours[key]):
            raise ValueError(
                f"The weights at {path} are for {metadata.get('target')} and not for "
                f"{target.name}: {key} is {theirs} there and {ours[key]} here; train them anew."
            )
    if metadata.get("target_hash") != ours["target_hash"]:
        warnings.warn(
            f"The weights at {path} were trained for {metadata.get('target')}, another model than "
            f"{target.name}: the text stays right, but fewer drafts may be accepted.",
            RuntimeWarning,
            stacklevel=3,
        )


def target_hash(target: Target) -> str:
    """A fingerprint of the model (norms, a sample of its embedding), the same in any precision."""
    digest = hashlib.sha256()
    sample = [target.model.embed.weight[::SAMPLED_ROWS], target.model.norm.weight]
    sample += [layer.mlp_norm.weight for layer in target.model.layers]
    for tensor in sample:
        if not tensor.is_meta:
            digest.update(tensor.detach().cpu().bfloat16().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """A fingerprint of which token every id means; empty without a tokenizer, which fits all."""
    if tokenizer is None:
        return ""
    table = json.dumps(sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1]))
    return hashlib.sha256(table.encode()).hexdigest()[:16]


# --- Modules --------------------------------------------------------------------------------------


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """What training changes or found out: parameters with gradients, and persistent buffers."""
    frozen = {name for name, p in module.named_parameters() if not p.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def load_trained_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Fill ``module`` with what `trained_state` gave; ValueError naming what does not fit."""
    wanted = trained_state(module)
    for name in wanted.keys() | tensors.keys():
        here, there = (side[name].shape if name in side else None for side in (wanted, tensors))
        if here != there:
            raise ValueError(f"The weights do not fit: {name} is {there} and should be {here}.")
    module.load_state_dict(dict(tensors), strict=False)
