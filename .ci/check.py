"""Runs the checks in parts, says first how long that takes, and ends with one line of totals.

.venv/bin/python .ci/check.py            everything
.venv/bin/python .ci/check.py lint fast  only these parts
"""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "test-artifacts"
FAST_LIMIT = 60  # seconds, promised for the fast part
NO_TESTS = 5  # pytest's exit status when a part has no test

# Seconds of every part: those of the reference machine, and those of the last run here.
RECORDED = ROOT / ".ci" / "seconds.json"
LAST_TIME = ARTIFACTS / "seconds.json"
DRAWING = ("matplotlib", "pillow", "fonttools", "contourpy", "kiwisolver", "numpy")

# Two processes of one thread each do more than one of two threads. What measures time, or holds a
# model in the test's own process, runs alone with all threads. Notebooks are handed out one by one,
# the long ones first, so that nobody waits long for the last.
IN_PAIRS = ["-n", "2", "--dist"]
TESTS = {
    "fast": [*IN_PAIRS, "worksteal", "-m", "not (model or gpu or notebook or browser)"],
    "model": ["-m", "(model or gpu) and not (notebook or browser)"],
    "notebooks": [*IN_PAIRS, "load", "--maxschedchunk=1", "-v", "-rP", "-m", "notebook"],
    "browser": ["-m", "browser"],
}
PARTS = ("lint", "fast", "figures", "model", "notebooks", "browser")


@dataclass
class Part:
    """One finished part: its name, whether it passed, its seconds and its counts."""

    name: str
    ok: bool
    seconds: float
    counts: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {word}" for word, n in self.counts.items() if n)
        return f"{self.name:10} {'ok' if self.ok else 'FAILED':7} {self.seconds:6.1f} s  {counts}"


def run_lint() -> bool:
    """Lint rules, then format; True when both are clean."""
    ruff = [sys.executable, "-m", "ruff"]
    rules = subprocess.run([*ruff, "check", "."], cwd=ROOT).returncode
    layout = subprocess.run([*ruff, "format", "--check", "."], cwd=ROOT).returncode
    return rules == layout == 0


def run_figures() -> bool:
    """Draws every figure again, elsewhere; True when the stored files have the same bytes."""
    with TemporaryDirectory(prefix="figures") as folder:
        env = os.environ | {"SPECDEC_LAB_OUTPUT": folder}
        command = [sys.executable, "-m", "specdec_lab", "figures"]
        run = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        old = old_files(Path(folder) / "figures", ROOT / "figures")
    if other := other_versions(metadata.version):
        print(f"Drawn, but not compared: the stored figures are not of {', '.join(other)}.")
        return run.returncode == 0
    if old:
        print(f"Not what their numbers draw: {', '.join(old)}. Run make figures.")
    return run.returncode == 0 and not old


def old_files(drawn: Path, stored: Path) -> list[str]:
    """Names of the files in ``drawn`` that ``stored`` lacks or holds with other bytes."""
    there = {path.name: path for path in stored.iterdir()}
    return sorted(
        path.name
        for path in drawn.iterdir()
        if path.name not in there or there[path.name].read_bytes() != path.read_bytes()
    )


def other_versions(version_of: Callable[[str], str]) -> list[str]:
    """The packages that decide the bytes of a figure and are not as pinned, with their versions."""
    pinned = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    found = [f"{package}=={version_of(package)}" for package in DRAWING]
    return [text for text in found if text not in pinned]


def run_tests(name: str) -> tuple[bool, Counter]:
    """One pytest part: whether it passed, and how many tests did what."""
    report = ARTIFACTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    env = dict(os.environ)
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process compiles package and tests anew
    if "-n" in TESTS[name]:
        env |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *TESTS[name], f"--junitxml={report}"]
    command += ["--durations=5", "--durations-min=2"]
    status = subprocess.run(command, cwd=ROOT, env=env).returncode
    return status in (0, NO_TESTS), count(report)


def count(report: Path) -> Counter:
    """Passed, failed and skipped tests of a JUnit report; nothing when it was not written."""
    if not report.exists():
        return Counter()
    suite = ElementTree.parse(report).getroot().find("testsuite")
    total, failures, errors, skipped = (
        int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return Counter(passed=total - failed - skipped, failed=failed, skipped=skipped)


def run_part(name: str) -> Part:
    """Runs one part under a heading."""
    print(f"\n=== {name} ===", flush=True)
    start = time.monotonic()
    without_tests = {"lint": run_lint, "figures": run_figures}
    run = without_tests.get(name)
    ok, counts = (run(), Counter()) if run else run_tests(name)
    return Part(name, ok, time.monotonic() - start, counts)


def expected(names: Iterable[str]) -> str:
    """One sentence on what these parts will take, by the last run here or the reference machine."""
    recorded = json.loads(RECORDED.read_text())
    here = json.loads(LAST_TIME.read_text()) if LAST_TIME.exists() else {}
    seconds = {name: here.get(name, recorded["seconds"][name]) for name in names}
    parts = ", ".join(f"{name} {s:.0f} s" for name, s in seconds.items())
    source = f"{recorded['cpu']}, {recorded['cores']} cores, quiet; here {os.cpu_count()} cores"
    if here.keys() >= seconds.keys():
        source = "as it took here last time"
    return f"This takes about {sum(seconds.values()) / 60:.0f} minutes ({source}): {parts}."


def remember(parts: list[Part]) -> None:
    """Keeps the seconds of the parts that passed, for the next run's announcement."""
    before = json.loads(LAST_TIME.read_text()) if LAST_TIME.exists() else {}
    now = {part.name: round(part.seconds) for part in parts if part.ok}
    LAST_TIME.write_text(json.dumps(before | now))


def summary(parts: list[Part]) -> str:
    """The table of the parts and the closing line of totals."""
    lines = [str(part) for part in parts]
    lines += [
        f"The fast part took {part.seconds:.0f} s (limit {FAST_LIMIT} s)."
        for part in parts
        if part.name == "fast"
    ]
    total = sum((part.counts for part in parts), Counter())
    words = ("passed", "failed", "skipped")
    lines.append("total: " + ", ".join(f"{total[word]} {word}" for word in words))
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Runs the named parts, or all; exit status 1 when one failed or no test ran at all."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"Unknown part {unknown[0]}: the parts are {', '.join(PARTS)}.")
        return 2
    ARTIFACTS.mkdir(exist_ok=True)
    print(expected(names or PARTS), flush=True)
    parts = [run_part(name) for name in names or PARTS]
    print(f"\n=== summary ===\n{summary(parts)}", flush=True)
    remember(parts)
    no_tests = not any(part.name in TESTS for part in parts)
    ran = no_tests or any(part.counts["passed"] for part in parts)
    return 0 if ran and all(part.ok for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
