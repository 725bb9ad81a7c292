"""The table of one method is made of what is recorded, and says what is missing."""

import pytest

from specdec_lab.study.best_k import Speed
from specdec_lab.study.measure import one_method

ACCEPTANCE = {
    "methods": {
        "eagle 9": {
            "temperatures": {
                "0": {
                    "ks": [1, 2],
                    "scopes": {
                        "chat": {"tau": [1.25, 1.5], "alpha": [0.25, None]},
                        "code": {"tau": [1.5, 1.75], "alpha": [0.5, 0.5]},
                    },
                }
            }
        },
        "mtp": {"temperatures": {"0": {"missing": "There are no trained weights."}}},
    }
}


@pytest.fixture
def recordings(monkeypatch):
    """What the machine "here" has recorded, by part."""
    found = {"acceptance": {"here": ACCEPTANCE}, "decode": {}}
    monkeypatch.setattr(one_method, "measured", lambda part: found[part])
    return found


def test_tau_by_k_and_alpha_by_depth_stand_in_the_table(recordings):
    said = one_method.recorded_of("eagle 9")
    assert said.startswith("here")
    assert "tau, k = 2" in said
    (chat,) = (line for line in said.splitlines() if line.startswith("chat"))
    assert chat.split()[1:5] == ["1.25", "1.50", "0.25", "-"]
    assert "not measured" in chat


def test_speed_ups_come_from_both_recordings(recordings, monkeypatch):
    recordings["decode"] = {"here": {}}
    speeds = {"chat": Speed([1, 2], [0.9, 0.8], 0, 1.0, (1.0, 1.0))}
    speeds["code"] = Speed([1, 2], [1.2, 1.4], 2, 1.4, (1.3, 1.5))
    monkeypatch.setattr(one_method, "foreseen", lambda *recorded: {"eagle 9": speeds})
    lines = one_method.recorded_of("eagle 9").splitlines()
    assert next(line for line in lines if line.startswith("code")).endswith("1.40 [1.30-1.50]")
    assert "none" in next(line for line in lines if line.startswith("chat"))


@pytest.mark.parametrize("label", ["mtp", "pard"])
def test_what_is_missing_is_said_with_the_command(recordings, label):
    assert "measure acceptance" in one_method.recorded_of(label)
    recordings["acceptance"] = {}
    assert label in one_method.recorded_of(label)
