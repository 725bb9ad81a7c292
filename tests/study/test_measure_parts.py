"""Measuring in several sittings: what is saved, what is used again, what is recorded.

pytest tests/study/test_measure_parts.py
"""

import json
from types import SimpleNamespace

import pytest
import torch

from specdec_lab.__main__ import MEASURED
from specdec_lab.study import recordings
from specdec_lab.study.measure import parts
from specdec_lab.study.measure.progress import table
from specdec_lab.study.measure.sittings import Sittings
from toys import random_target


@pytest.fixture
def output(tmp_path, monkeypatch):
    """Recordings go to a folder of the test."""
    monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


def part_of(cells, **settings):
    """A part like those of the package, made of functions that return dicts."""
    return SimpleNamespace(
        settings=lambda quick: {"quick": quick, **settings},
        cells=lambda target, settings: cells,
        summary=lambda settings, results: {"results": results},
        table=lambda data: str(len(data["results"])),
    )


class Counted:
    """A cell that counts its runs, and fails while ``broken``."""

    def __init__(self, value, broken=False):
        self.value, self.broken, self.runs = value, broken, 0

    def __call__(self):
        """The result, or an exception as a kill would leave behind."""
        self.runs += 1
        if self.broken:
            raise KeyboardInterrupt
        return {"value": self.value}


def test_a_run_that_was_killed_goes_on_where_it_stopped(output, target):
    first, second = Counted(1.5), Counted(2, broken=True)
    part, said = part_of({"one": first, "two": second}), []
    with pytest.raises(KeyboardInterrupt):
        parts.measure(part, "toy", target, False, said.append)
    second.broken = False
    path = parts.measure(part, "toy", target, False, said.append)
    assert (first.runs, second.runs) == (1, 2)
    assert "1 cells are finished" in said[0]
    found = json.loads(path.read_text())
    assert found["data"]["results"] == {"one": {"value": 1.5}, "two": {"value": 2}}
    assert found["provenance"]["sittings"] == 2
    assert list(path.parent.iterdir()) == [path]  # nothing unfinished is left behind


def test_a_finished_part_is_measured_anew(output, target):
    cell = Counted(1)
    for _ in range(2):
        parts.measure(part_of({"one": cell}), "toy", target, False, lambda text: None)
    assert cell.runs == 2


def test_other_settings_start_afresh(tmp_path):
    said: list[str] = []
    path, cell = tmp_path / "toy.partial", Counted(1)
    Sittings(path, {"rounds": 2, "how": {"k": 4}}, said.append).run({"one": cell})
    again = Sittings(path, {"rounds": 3, "how": {"k": 5}}, said.append)
    assert said == ["toy.partial was begun with another how.k, rounds: starting afresh."]
    again.run({"one": cell})
    assert cell.runs == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}, "cells": []}'])
def test_a_damaged_file_is_refused(tmp_path, text):
    path = tmp_path / "toy.partial"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"toy\.partial is damaged; delete it"):
        Sittings(path, {}, print)


def test_what_happens_while_saving_spoils_nothing(tmp_path, monkeypatch):
    path = tmp_path / "toy.partial"
    sittings = Sittings(path, {}, print)
    sittings.run({"one": Counted(1)})

    def killed(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sittings.run({"two": Counted(2)})
    assert Sittings(path, {}, lambda text: None).run({"one": Counted(7)}) == {"one": {"value": 1}}


def test_a_rough_answer_never_takes_the_place_of_a_whole_one(output, target):
    said: list[str] = []
    rough = parts.measure(part_of({"one": Counted(1)}), "toy", target, True, said.append)
    assert json.loads(rough.read_text())["data"]["quick"] is True
    whole = parts.measure(part_of({"one": Counted(2)}), "toy", target, False, said.append)
    assert json.loads(whole.read_text())["data"]["results"] == {"one": {"value": 2}}
    assert parts.measure(part_of({"one": Counted(3)}), "toy", target, True, said.append) is None
    assert json.loads(whole.read_text())["data"]["results"] == {"one": {"value": 2}}
    assert "left alone" in said[-1]


def test_a_recording_says_where_it_comes_from(output, target):
    path = parts.measure(part_of({}), "toy", target, False, lambda text: None)
    found = json.loads(path.read_text())["provenance"]
    assert found["command"] == "python -m specdec_lab measure toy"
    assert (found["model"], found["dtype"]) == ("random", "torch.float32")
    needed = {"commit", "date", "machine", "versions", "threads"}
    assert needed <= found.keys()
    assert {"torch", "transformers", "specdec-lab"} <= found["versions"].keys()


def test_without_git_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(recordings, "PROJECT", tmp_path)
    assert parts._commit() is None


def test_every_part_has_its_four_functions():
    assert set(MEASURED) <= set(parts.PARTS)
    for name in parts.PARTS:
        module = parts.module_of(name)
        assert all(hasattr(module, word) for word in ("settings", "cells", "summary", "table"))
        full, rough = (json.dumps(module.settings(quick)) for quick in (False, True))
        assert full != rough
    with pytest.raises(ValueError, match="there is no part 'speed'"):
        parts.module_of("speed")


def test_progress_is_a_line_a_cell_where_there_is_no_terminal(tmp_path, capsys):
    Sittings(tmp_path / "toy", {}, print).run({"one": Counted(1), "two": Counted(2)}, "toy")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines] == ["toy 1/2: one", "toy 2/2: two"]


def test_a_table_is_aligned():
    text = table(("name", "ms"), [("a", 1.234), ("longer", 123.4), ("none", None)])
    assert text.splitlines() == [
        "name      ms",
        "------  ----",
        "a       1.23",
        "longer   123",
        "none       -",
    ]
