"""Recordings: rounded, with provenance, left alone when nothing changed.

pytest tests/study/test_recordings.py
"""

import json

import numpy as np
import pytest
import torch

from specdec_lab.study import recordings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own for every test."""
    monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path))
    return tmp_path / "data" / "recordings"


def test_floats_keep_six_digits_and_everything_becomes_json():
    data = {1: 1 / 3, "pair": (2, 1e-9 / 3), "array": np.arange(3), "tensor": torch.tensor([0.1])}
    rounded = recordings.rounded(data | {"flag": True, "none": None})
    assert rounded["1"] == 0.333333
    assert rounded["pair"] == [2, 3.33333e-10]
    assert rounded["array"] == [0, 1, 2]
    assert rounded["tensor"] == [0.1]
    assert rounded["flag"] is True
    assert rounded == json.loads(json.dumps(rounded))
    assert recordings.rounded(rounded) == rounded


def test_what_was_saved_is_what_is_loaded(elsewhere):
    saved = recordings.save("99_x", {"alpha": 2 / 3, "text": "ığüşöç"}, seed=7)
    assert recordings.load("99_x") == saved == {"alpha": 0.666667, "text": "ığüşöç"}
    origin = recordings.origin("99_x")
    assert origin["seed"] == 7
    assert origin["command"] == "make notebooks"
    assert set(origin) >= {"date", "machine", "versions"}
    assert "matplotlib" in origin["versions"]
    assert "ığüşöç" in (elsewhere / "99_x.json").read_text(encoding="utf-8")


def test_the_same_numbers_leave_the_file_alone(elsewhere):
    recordings.save("99_x", {"a": 0.1 + 0.2}, seed=1)
    before = (elsewhere / "99_x.json").read_bytes()
    recordings.save("99_x", {"a": 0.3}, seed=2)
    assert (elsewhere / "99_x.json").read_bytes() == before
    recordings.save("99_x", {"a": 0.31}, seed=2)
    assert recordings.origin("99_x")["seed"] == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_json_does_not_know_is_refused(bad, elsewhere):
    with pytest.raises(ValueError, match=r"recorded|JSON"):
        recordings.save("99_x", {"a": bad})
    assert not (elsewhere / "99_x.json").exists()


def test_an_unknown_recording_is_named():
    with pytest.raises(OSError, match="no recording '99_y'"):
        recordings.load("99_y")


def test_the_project_s_own_recordings_are_found_from_elsewhere():
    assert recordings.slugs()
    assert recordings.load(recordings.slugs()[0])


@pytest.mark.parametrize("slug", recordings.slugs())
def test_every_recording_of_the_project_says_where_it_comes_from(slug):
    origin = recordings.origin(slug)
    assert {"command", "date", "machine", "versions"} <= set(origin)
    data = recordings.load(slug)
    assert recordings.rounded(data) == data


CPUINFO = """processor	: 0
cpu family	: 25
model		: 1
model name	: {name}
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC", "AMD EPYC (family 25, model 1)"),
        ("Intel Xeon Processor @ 2.10GHz", "Intel Xeon Processor @ 2.10GHz (family 25, model 1)"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core Processor"),
    ],
)
def test_a_name_without_a_number_says_family_and_model(name, expected, tmp_path):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(name=name))
    assert recordings.cpu(tmp_path / "cpuinfo") == expected


def test_without_cpuinfo_there_is_a_name(tmp_path):
    assert recordings.cpu(tmp_path / "none")
