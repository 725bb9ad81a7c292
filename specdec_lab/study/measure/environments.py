"""Libraries that we compare with, each in a folder of its own: never dependencies of the lab.

A library is installed once into the user's cache, without what it requires, at a pinned version.
Only a child process looks there, in front of the lab's own packages: so torch, transformers and the
processor's threads are the same on both sides. What cannot be built is said, and the comparison
goes on without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from specdec_lab.decoding.store import Report, cache_folder

BUILD_SECONDS = 1800.0


class NotBuiltError(RuntimeError):
    """A library could not be installed; the message is one sentence that says why."""


@dataclass(frozen=True)
class Environment:
    """What is installed for one library.

    ``requirements`` are pinned and complete, but for what the lab brings. With ``build_tools`` the
    library is built against the lab's own packages (its recipe would fetch another torch) with
    those tools at hand; ``{tools}`` and ``{python}`` in ``variables`` name their folder and the
    interpreter.
    """

    name: str
    requirements: tuple[str, ...]
    build_tools: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version of the library itself, the first requirement."""
        return self.requirements[0].partition("==")[2]


def installed(env: Environment, report: Report) -> Path:
    """The folder of a library, which is installed first if need be; NotBuiltError if it can't be.

    Safe to interrupt and to repeat: the folder appears when it is whole. A failure is noted beside
    it and not tried again before that note is deleted: a build may take long.
    """
    home = cache_folder() / "peers"
    folder = home / f"{env.name}-{env.version}"
    home.mkdir(parents=True, exist_ok=True)
    note = Path(f"{folder}.failed")
    with FileLock(f"{folder}.lock"):
        if note.exists():
            raise NotBuiltError(note.read_text(encoding="utf-8").strip())
        if not folder.exists():
            report(f"Installing {env.requirements[0]} into {folder} (once; it may be built) ...")
            with TemporaryDirectory(prefix=f"{env.name}.part-", dir=home) as scratch:
                try:
                    _install(env, Path(scratch), report)
                except NotBuiltError as error:
                    note.write_text(f"{error}\n", encoding="utf-8")
                    raise
                (Path(scratch) / "library").replace(folder)
    return folder


def _install(env: Environment, scratch: Path, report: Report) -> None:
    tools, words = scratch / "tools", []
    variables = dict(os.environ)
    if env.build_tools:
        _pip(["--target", str(tools), *env.build_tools], variables)
        paths = {"PYTHONPATH": str(tools), "PATH": str(tools / "bin")}
        variables |= {name: _in_front(path, name) for name, path in paths.items()}
        words = ["--no-build-isolation"]
    names = {"tools": str(tools), "python": sys.executable}
    variables |= {name: value.format(**names) for name, value in env.variables.items()}
    _pip([*words, "--target", str(scratch / "library"), *env.requirements], variables)
    shutil.rmtree(tools, ignore_errors=True)


def _in_front(path: str, variable: str) -> str:
    rest = os.environ.get(variable)
    return os.pathsep.join([path, rest]) if rest else path


def _pip(words: list[str], variables: Mapping[str, str]) -> None:
    """``pip install`` without what is required; NotBuiltError with its last complaint."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*command, *words],
            env=variables,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuiltError(f"building took more than {BUILD_SECONDS / 60:.0f} minutes") from error
    if done.returncode:
        raise NotBuiltError(f"pip: {_complaint(done.stdout + done.stderr)}")


def _complaint(output: str) -> str:
    """The line of pip's output that says most: the last error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    errors = [line for line in lines if line.lower().startswith(("error:", "cmake error"))]
    return (errors or lines)[-1]
