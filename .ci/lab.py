"""Opens JupyterLab on the first notebook: on this machine only, behind a token, without news.

.venv/bin/python .ci/lab.py
"""

import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlunsplit

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / ".ci" / "lab_settings"
FIRST_PAGE = "/lab/tree/notebooks/00_start_here.ipynb"
PORTS = range(8888, 8988)


def free_port(ports: range = PORTS) -> int:
    """The first port of the range that nobody listens on; OSError when all are taken."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"The ports {ports[0]} to {ports[-1]} are all taken: close another JupyterLab.")


def has_browser(env: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a browser window could open here."""
    if platform.startswith("linux") and not (env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def arguments(port: int) -> list[str]:
    """The options of `jupyter lab`; the token travels in JUPYTER_TOKEN."""
    options = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--Application.log_level=WARN",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url={FIRST_PAGE}",
        f"--LabApp.app_settings_dir={SETTINGS}",
    ]
    if os.geteuid() == 0:  # a container: Jupyter asks for a word that this is meant
        options.append("--ServerApp.allow_root=True")
    return options


def address(port: int, token: str) -> str:
    """Where the first notebook is, token included."""
    return urlunsplit(("http", f"127.0.0.1:{port}", FIRST_PAGE, f"token={token}", ""))


def main() -> int:
    """Says where the lab is and becomes JupyterLab."""
    port, token = free_port(), os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", *arguments(port)]
    print("JupyterLab starts; in a few seconds it answers at this address:\n")
    print(f"    {address(port, token)}\n")
    if has_browser():
        print("Your browser opens by itself.")
    else:
        command.append("--no-browser")
        print("No browser can open here: copy the address into one. On another computer, first run")
        print(f"there: ssh -L {port}:127.0.0.1:{port} NAME-OF-THIS-MACHINE")
    print("Press Ctrl-C twice here to stop the lab.", flush=True)
    os.chdir(ROOT)
    os.execve(sys.executable, command, os.environ | {"JUPYTER_TOKEN": token})


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(str(error))
