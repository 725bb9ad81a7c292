"""Reading the recorded measurements of all machines."""

from specdec_lab.study import recordings
from specdec_lab.study.measurements import FOLDER, machine_name, measured, reference_machine


def test_every_machine_is_found_and_the_readers_own_wins(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "PROJECT", tmp_path / "project")
    for output, cost in (("project", 1.0), ("own", 2.0)):
        monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path / output))
        recordings.save("cost", {"1": cost}, folder=f"{FOLDER}/one")
    recordings.save("cost", {"1": 3.0}, folder=f"{FOLDER}/two")
    assert measured("cost") == {"one": {"1": 2.0}, "two": {"1": 3.0}}
    assert measured("batch") == {}


def test_the_machine_of_the_course_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "PROJECT", tmp_path)
    monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path))
    for machine in ("a-1-threads", "zen-9-x-4-threads", "zoo"):
        recordings.save("cost", {"1": 1.0}, folder=f"{FOLDER}/{machine}")
    assert list(measured("cost")) == ["a-1-threads", "zen-9-x-4-threads", "zoo"]
    (tmp_path / FOLDER / "reference.json").write_text('{"cpu": "Zen (9) X", "cores": 4}')
    assert reference_machine() == "zen-9-x-4-threads"
    assert list(measured("cost")) == ["zen-9-x-4-threads", "a-1-threads", "zoo"]


def test_the_project_s_reference_machine_has_recordings():
    assert reference_machine() == next(iter(measured("cost")))


def test_a_processor_without_a_number_has_family_and_model_in_its_folder(monkeypatch):
    monkeypatch.setattr(recordings, "cpu", lambda: "AMD EPYC (family 25, model 1)")
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    assert machine_name() == "amd-epyc-family-25-model-1-2-threads"
