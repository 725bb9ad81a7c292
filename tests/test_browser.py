"""One look through a real browser: JupyterLab, notebook 00, all cells, the slider, the picture.

    make test, or: .venv/bin/pytest -m browser

Chromium is taken from CHROME, the PATH or Playwright's own folder. Pictures of what was seen are
left in test-artifacts/.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from project import ROOT, load_ci

lab = load_ci("lab")

ARTIFACTS = ROOT / "test-artifacts"
SERVER_PATIENCE = 120  # seconds; a busy machine is several times slower than a quiet one
PAGE_PATIENCE = 120_000  # milliseconds, for anything that should appear on the page
RUN_PATIENCE = 600_000  # milliseconds, for all cells of the notebook

SLOWEST = 3000  # milliseconds from a key to its picture, even on a busy machine

FIGURE = "figure.specdec-figure"
STATUS = f"{FIGURE} .specdec-status"
SLIDER = ".widget-hslider:has(.widget-label:text-is('k'))"
CELL_ERROR = "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type$='stderr']"
NEWS = "text=official Jupyter news"

# What JupyterLab itself says on its console; nothing of it is about the notebook.
NOISE = ("favicon",)

SETTINGS = {
    # the test must not write into the notebook it opens, and looks at all cells, not at a window
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def find_browser() -> str | None:
    """The browser to drive, or None."""
    names = ("chromium", "google-chrome", "chromium-browser", "chrome")
    found = [os.environ.get("CHROME"), *map(shutil.which, names)]
    return next((path for path in found if path), None)


def refuse(reason: str) -> None:
    """Skips, or fails where the browser test must run."""
    if os.environ.get("SPECDEC_REQUIRE_BROWSER", "") not in ("", "0"):
        pytest.fail(f"The browser test must run here, but {reason}.")
    pytest.skip(reason)


@dataclass
class Server:
    """A running JupyterLab: where it answers, its process and what it printed."""

    address: str
    process: subprocess.Popen
    log: Path

    def wait(self) -> None:
        """Returns when it answers; raises RuntimeError with the end of its log when it does not."""
        deadline = time.monotonic() + SERVER_PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.address, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        raise RuntimeError(f"JupyterLab does not answer:\n{self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        """Asks it to end, its kernels with it, and ends it when it does not."""
        for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
            if self.process.poll() is None:
                os.killpg(self.process.pid, sign)
                try:
                    self.process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue


def environment(folder: Path, token: str) -> dict[str, str]:
    """A user without Jupyter settings, and a kernel that shows panels and leaves the tree alone."""
    left_out = ("SPECDEC_LAB_STATIC", "MPLBACKEND")
    env = {key: value for key, value in os.environ.items() if key not in left_out}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        env[name] = str(folder / name.lower())
    return env | {"JUPYTER_TOKEN": token, "SPECDEC_LAB_OUTPUT": str(folder / "output")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """JupyterLab as `make lab` starts it, for a user without settings."""
    port, token = lab.free_port(range(18888, 18988)), secrets.token_hex(8)
    user_settings = tmp_path / "settings"
    for name, values in SETTINGS.items():
        path = user_settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    command = [sys.executable, "-m", "jupyterlab", *lab.arguments(port), "--no-browser"]
    command += [
        "--LabApp.expose_app_in_browser=True",
        f"--LabApp.user_settings_dir={user_settings}",
        f"--LabApp.workspaces_dir={tmp_path / 'workspaces'}",
    ]
    log = tmp_path / "jupyterlab.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(tmp_path, token),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Server(f"http://127.0.0.1:{port}/?token={token}", process, log)
    try:
        running.wait()
        yield running
    finally:
        running.stop()


def console_error(message) -> list[str]:
    """A console message as text with its origin, when it is an error and no known noise."""
    text = f"{message.text} ({message.location.get('url')})"
    noise = any(word in text for word in NOISE)
    return [text] if message.type == "error" and not noise else []


@pytest.fixture
def page(server: Server):
    """A page of a headless browser; at the end, whatever its console complained about fails."""
    sync_api = pytest.importorskip("playwright.sync_api")
    executable = find_browser()
    complaints = []
    with sync_api.sync_playwright() as playwright:
        if executable is None and not Path(playwright.chromium.executable_path).exists():
            refuse("no Chromium was found: install it or set CHROME")
        flags = ["--disable-gpu", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, device_scale_factor=1)
        page.set_default_timeout(PAGE_PATIENCE)
        page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
        page.on("console", lambda message: complaints.extend(console_error(message)))
        ARTIFACTS.mkdir(exist_ok=True)
        yield page
        page.screenshot(path=ARTIFACTS / "00_last.png")
        browser.close()
    assert complaints == []


KERNEL_IDLE = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel?.status === 'idle';
}"""
RUN_ALL = """() => {
  window.ranAll = false;
  const done = window.jupyterapp.commands.execute('notebook:run-all-cells');
  done.then(() => { window.ranAll = true; });
}"""


def open_and_run(page, address: str) -> None:
    """Opens the lab's first page and runs all cells, as Run > Run All Cells does."""
    page.goto(address)
    page.wait_for_function(KERNEL_IDLE)
    page.evaluate(RUN_ALL)
    page.wait_for_function("() => window.ranAll", timeout=RUN_PATIENCE)


def picture(page) -> str:
    """A digest of the picture that the panel shows."""
    return hashlib.sha256(page.locator(f"{FIGURE} img").get_attribute("src").encode()).hexdigest()


def picture_is_drawn(page) -> bool:
    """Whether the browser could decode the panel's picture."""
    return page.locator(f"{FIGURE} img").evaluate(
        "image => image.complete && image.naturalWidth > 100"
    )


def move(page, key: str) -> str:
    """Presses a key on the slider k and returns its new value once the panel speaks of it."""
    slider = page.locator(SLIDER)
    readout = slider.locator(".widget-readout")
    before = readout.inner_text()
    slider.locator(".noUi-handle").focus()
    page.keyboard.press(key)
    page.wait_for_function(
        "([element, old]) => element.innerText !== old", arg=[readout.element_handle(), before]
    )
    value = readout.inner_text().strip()
    page.locator(STATUS, has_text=re.compile(rf"\bk = {value}\b")).wait_for()
    return value


WATCH = """selector => {
  const image = () => document.querySelector(selector + ' img');
  let pressed = null, shown = image().src;
  window.waits = [];
  document.addEventListener('keydown', () => { pressed = performance.now(); }, true);
  new MutationObserver(() => {
    if (!image() || image().src === shown) return;
    const start = pressed;
    shown = image().src;
    image().decode().then(() => requestAnimationFrame(
      () => window.waits.push(performance.now() - start)));
  }).observe(document.body, {childList: true, subtree: true});
}"""


def key_to_picture(page, keys: list[str]) -> list[float]:
    """The milliseconds from each key to the decoded picture of its state, one after the other."""
    page.evaluate(WATCH, FIGURE)
    for count, key in enumerate(keys, start=1):
        move(page, key)
        page.wait_for_function("count => window.waits.length === count", arg=count)
    return page.evaluate("() => window.waits")


def say_waits(waits: list[float]) -> str:
    """Median and 95 % of them, in one line."""
    most = statistics.quantiles(waits, n=20, method="inclusive")[-1]
    return (
        f"key to picture, {len(waits)} states drawn for the first time: "
        f"median {statistics.median(waits):.0f} ms, 95 % {most:.0f} ms"
    )


@pytest.mark.browser
def test_34_the_slider_of_notebook_00_changes_its_one_figure(server, page, capsys):
    open_and_run(page, server.address)
    assert page.locator(CELL_ERROR).all_inner_texts() == []
    page.locator(FIGURE).scroll_into_view_if_needed()
    assert page.locator(NEWS).count() == 0
    assert page.locator(f"{FIGURE} img").get_attribute("alt")
    assert picture_is_drawn(page)
    page.screenshot(path=ARTIFACTS / "00_before.png")

    first = picture(page)
    pictures = {}
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        value = move(page, key)
        digest = picture(page)
        assert pictures.setdefault(value, digest) == digest, "the same k, another picture"
        assert page.locator(FIGURE).count() == 1
        assert picture_is_drawn(page)
    assert len({first, *pictures.values()}) == 3
    page.screenshot(path=ARTIFACTS / "00_after.png")

    waits = key_to_picture(page, ["End", "Home", "ArrowRight", "ArrowRight"])
    with capsys.disabled():
        print(f"\n{say_waits(waits)}")
    assert max(waits) < SLOWEST

    for key in ["ArrowRight"] * 4 + ["ArrowLeft"]:  # faster than the pictures
        page.keyboard.press(key)
    value = page.locator(SLIDER).locator(".widget-readout").inner_text().strip()
    page.locator(STATUS, has_text=re.compile(rf"\bk = {value}\b")).wait_for()
    assert picture_is_drawn(page)
    assert page.locator(CELL_ERROR).all_inner_texts() == []
    assert page.locator(NEWS).count() == 0
