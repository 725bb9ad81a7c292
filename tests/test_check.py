"""The checks turn red when they should, and say what they will take.

pytest tests/test_check.py
"""

import json

import pytest

from project import load_ci

check = load_ci("check")


def test_totals_end_the_output():
    parts = [
        check.Part("lint", True, 1.0),
        check.Part("fast", True, 42.4, check.Counter(passed=9, failed=1, skipped=2)),
    ]
    text = check.summary(parts).splitlines()
    assert "The fast part took 42 s (limit 60 s)." in text
    assert text[-1] == "total: 9 passed, 1 failed, 2 skipped"


@pytest.fixture
def folders(tmp_path):
    """A folder of drawn files and one of stored files, which hold the same."""
    for name in ("drawn", "stored"):
        (tmp_path / name).mkdir()
        for kind in ("png", "svg"):
            (tmp_path / name / f"00_x.{kind}").write_bytes(kind.encode())
    return tmp_path / "drawn", tmp_path / "stored"


def test_41_stored_figures_that_their_numbers_do_not_draw_are_named(folders):
    drawn, stored = folders
    assert check.old_files(drawn, stored) == []
    (stored / "explore.html").write_text("not drawn")
    assert check.old_files(drawn, stored) == []
    (stored / "00_x.svg").write_bytes(b"svh")
    (drawn / "00_new.png").write_bytes(b"new")
    assert check.old_files(drawn, stored) == ["00_new.png", "00_x.svg"]


def test_41_other_versions_of_what_draws_are_named():
    lines = (check.ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert check.other_versions(pinned.get) == []
    assert check.other_versions((pinned | {"pillow": "0.1"}).get) == ["pillow==0.1"]


@pytest.fixture
def last_time(tmp_path, monkeypatch):
    """The file of the last run's seconds, in a folder of the test."""
    monkeypatch.setattr(check, "LAST_TIME", tmp_path / "seconds.json")
    return check.LAST_TIME


def test_every_part_has_its_seconds_recorded(last_time):
    recorded = json.loads(check.RECORDED.read_text())
    assert set(recorded["seconds"]) == set(check.PARTS)
    total = sum(recorded["seconds"].values()) / 60
    assert f"about {total:.0f} minutes" in check.expected(check.PARTS)
    assert f"{recorded['cores']} cores" in check.expected(check.PARTS)


def test_what_it_took_here_comes_first(last_time):
    check.remember([check.Part("lint", True, 3.2), check.Part("fast", False, 9.0)])
    assert check.expected(["lint"]).endswith("as it took here last time): lint 3 s.")
    check.remember([check.Part("fast", True, 117.0)])
    said = check.expected(["lint", "fast"])
    assert said.startswith("This takes about 2 minutes (as it took here last time)")
    assert said.endswith("lint 3 s, fast 117 s.")
    assert "last time" not in check.expected(["lint", "browser"])
