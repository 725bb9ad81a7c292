"""Reading the recorded measurements of all machines."""

from specdec_lab.study import recordings
from specdec_lab.study.measurements import FOLDER, measured


def test_every_machine_is_found_and_the_readers_own_wins(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "PROJECT", tmp_path / "project")
    for output, cost in (("project", 1.0), ("own", 2.0)):
        monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path / output))
        recordings.save("cost", {"1": cost}, folder=f"{FOLDER}/one")
    recordings.save("cost", {"1": 3.0}, folder=f"{FOLDER}/two")
    assert measured("cost") == {"one": {"1": 2.0}, "two": {"1": 3.0}}
    assert measured("batch") == {}
