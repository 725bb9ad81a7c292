"""Sets everything up: the virtual environment, PyTorch, the other packages, the language model.

    python3 .ci/bootstrap.py

Needs nothing but Python's own library. It may be interrupted and repeated at any point: every
step looks at what is there first, and the stamp that makes a second run quick is written last.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".specdec_lab_ready"
START = "specdec_lab_threads.pth"  # Python runs the line in it at each start
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"

OLDEST, NEWEST = (3, 11), (3, 13)  # as requires-python in pyproject.toml
TORCH = "torch>=2.6,<2.14"  # as in pyproject.toml
PREPARE_THREADS = (  # whoever imports torch first, be it in the kernel that an editor starts
    "import os, sys; path = os.path.join(sys.prefix, os.pardir, 'specdec_lab', 'threads.py'); "
    "scope = {}; os.path.exists(path) and (exec(open(path).read(), scope), scope['prepare']())\n"
)
NEEDED_GB = 4  # the CPU build of everything takes less than 2 GB, downloads included less than 4


class SetupError(RuntimeError):
    """Set-up cannot go on; the message is one sentence that says what to do."""


def say(text):
    """Prints one plain sentence at once."""
    print(text, flush=True)


def run(*command, env=None):
    """Runs a command with its output shown; raises SetupError when it fails."""
    result = subprocess.run([str(part) for part in command], cwd=ROOT, env=env)
    if result.returncode:
        words = " ".join(str(part) for part in command[1:4])
        raise SetupError(
            f"The command '{words} ...' failed (see above); repeat the same make command once the "
            "cause is mended, finished steps are not done again."
        )


def succeeds(*command):
    """Whether a command runs without error; its output is not shown."""
    try:
        return (
            subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True).returncode == 0
        )
    except OSError:
        return False


def suits(version):
    """Whether a Python version (major, minor) can run the project."""
    return OLDEST <= tuple(version[:2]) <= NEWEST


def choose_python(version=None, which=shutil.which):
    """The interpreter to build with: this one, or a suitable one on the PATH."""
    version = sys.version_info if version is None else version
    if suits(version):
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = which(f"python3.{minor}")
        if found and succeeds(found, "-c", "import venv"):
            return found
    raise SetupError(
        f"Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} is needed and this is "
        f"{version[0]}.{version[1]}: install one of them, then run 'make PYTHON=python3.12 ...'."
    )


def check_disk(free_bytes=None):
    """Raises SetupError when the disk of the project has too little room."""
    free = shutil.disk_usage(ROOT).free if free_bytes is None else free_bytes
    if free < NEEDED_GB * 1e9:
        raise SetupError(
            f"Set-up needs {NEEDED_GB} GB of free disk space in {ROOT} and there are "
            f"{free / 1e9:.1f} GB: make room, then repeat the command."
        )


def fingerprint():
    """What the environment depends on, as one line: requirements, recorded versions, its start."""
    digest = hashlib.sha256(PREPARE_THREADS.encode())
    for path in (PROJECT, CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_ready():
    """Whether an earlier run has finished with these very requirements."""
    with contextlib.suppress(OSError):
        return STAMP.read_text().strip() == fingerprint() and PYTHON.exists()
    return False


def make_venv():
    """Creates .venv, or creates it anew when an interrupted run left half of one."""
    python = choose_python()
    if succeeds(PYTHON, "-m", "pip", "--version"):
        say("Step 1 of 4: the virtual environment .venv is there.")
        return
    say("Step 1 of 4: creating the virtual environment .venv (10 seconds).")
    if subprocess.run([python, "-m", "venv", "--clear", str(VENV)]).returncode:
        raise SetupError(
            f"{python} could not create .venv: on Debian and Ubuntu install the package "
            "python3-venv, then repeat the command."
        )


def wheel_folders(find_links):
    """The folders in the value of PIP_FIND_LINKS that hold a torch wheel."""
    folders = [Path(word.replace("file://", "", 1)) for word in find_links.split()]
    return [folder for folder in folders if any(folder.glob("torch-*.whl"))]


def install_torch():
    """Installs PyTorch in the build that fits this machine, small where no GPU is."""
    check = (
        "import importlib.metadata as m; v = tuple(map(int, m.version('torch').split('.')[:2])); "
        "assert (2, 6) <= v < (2, 14); import torch"
    )
    if succeeds(PYTHON, "-c", check):
        say("Step 2 of 4: PyTorch is there.")
        return
    pip = (PYTHON, "-m", "pip", "install")
    if wheel_folders(os.environ.get("PIP_FIND_LINKS", "")):
        say("Step 2 of 4: installing PyTorch from the wheel in PIP_FIND_LINKS (1 minute).")
        run(*pip, TORCH)
        return
    backend = os.environ.get("TORCH_BACKEND", "auto")
    say(f"Step 2 of 4: installing PyTorch with uv, build '{backend}' (1 to 5 minutes).")
    uv = (PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON)
    if (
        succeeds(*pip, "uv")
        and not subprocess.run(
            [str(part) for part in (*uv, f"--torch-backend={backend}", TORCH)], cwd=ROOT
        ).returncode
    ):
        return
    say("uv found no such build, so pip takes over; on Linux that can be the CUDA build, 3 GB.")
    run(*pip, TORCH)


def install_packages():
    """Installs the project itself, editable, with all it needs, at the recorded versions."""
    say("Step 3 of 4: installing the other packages (1 to 5 minutes).")
    run(PYTHON, "-m", "pip", "install", "-c", CONSTRAINTS, "-e", ".[test]")


def prepare_threads():
    """Lets each Python of .venv prepare torch's threads when it starts."""
    for folder in (VENV / "lib").glob("python3.*/site-packages"):
        (folder / START).write_text(PREPARE_THREADS)


def fetch_model():
    """Fetches the default language model into the user's cache, unless it is there."""
    say("Step 4 of 4: the language model SmolLM2-135M-Instruct (100 MB, fetched once, 2 minutes).")
    run(PYTHON, "-m", "specdec_lab", "fetch")


@contextlib.contextmanager
def one_at_a_time():
    """Holds a lock on the project folder, so that two set-ups do not mix."""
    handle = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another set-up of this folder is running; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def set_up():
    """Runs the four steps, or none when they have been run."""
    with one_at_a_time():
        if is_ready():
            say("Set-up: everything is there.")
            return
        start = time.monotonic()
        say("Set-up: four steps, once; you may interrupt it and repeat the command.")
        STAMP.unlink(missing_ok=True)
        check_disk()
        make_venv()
        install_torch()
        install_packages()
        prepare_threads()
        fetch_model()
        STAMP.write_text(fingerprint() + "\n")
        say(f"Set-up finished after {time.monotonic() - start:.0f} seconds.")


def main():
    """Sets up; every foreseen failure ends in one sentence and exit status 1."""
    try:
        set_up()
    except SetupError as error:
        say(f"Set-up stopped. {error}")
        return 1
    except KeyboardInterrupt:
        say("\nSet-up interrupted; repeat the command to go on where it stopped.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
