"""Runs the checks in parts, shows how long each took, and ends with one line of totals.

.venv/bin/python .ci/check.py            everything
.venv/bin/python .ci/check.py lint fast  only these parts
"""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "test-artifacts"
FAST_LIMIT = 60  # seconds, promised for the fast part
NO_TESTS = 5  # pytest's exit status when a part has no test

# Fast tests share the cores between processes, one thread each; the others run one at a time with
# all threads, because they hold a model of 0.5 GB or measure time.
PARTS = {
    "lint": None,
    "fast": ["-n", "2", "--dist", "worksteal", "-m", "not (model or gpu or notebook or browser)"],
    "model": ["-m", "(model or gpu) and not (notebook or browser)"],
    "notebooks": ["-m", "notebook"],
    "browser": ["-m", "browser"],
}


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


def run_tests(name: str) -> tuple[bool, Counter]:
    """One pytest part: whether it passed, and how many tests did what."""
    report = ARTIFACTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    env = dict(os.environ)
    if name == "fast":
        env |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *PARTS[name], f"--junitxml={report}"]
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
    ok, counts = (run_lint(), Counter()) if name == "lint" else run_tests(name)
    return Part(name, ok, time.monotonic() - start, counts)


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
    parts = [run_part(name) for name in names or PARTS]
    print(f"\n=== summary ===\n{summary(parts)}", flush=True)
    only_lint = [part.name for part in parts] == ["lint"]
    ran = only_lint or any(part.counts["passed"] for part in parts)
    return 0 if ran and all(part.ok for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
