"""The script for a lent GPU: the model in parts and together again, and limits that add up.

pytest tests/test_gpu_script.py
"""

import re
import subprocess

import pytest

from project import ROOT, load_ci

parcel = load_ci("parcel")
SCRIPT = ROOT / ".ci" / "gpu.sh"
MOST_SECONDS = 600  # of one call on a lent machine


@pytest.fixture
def packed(tmp_path):
    """A file in three parts."""
    file = tmp_path / "model.whl"
    file.write_bytes(bytes(range(256)) * 41)
    parcel.split(file, tmp_path / "box", 3)
    return tmp_path


def test_the_parts_give_the_file_again(packed, capsys):
    box = packed / "box"
    sizes = [(box / f"part-{n}" / "piece").stat().st_size for n in (1, 2, 3)]
    assert max(sizes) - min(sizes) <= 3
    assert parcel.main(["check", str(box)]) == 0
    assert capsys.readouterr().out.count("is whole") == 3
    assert parcel.main(["join", str(box), str(packed / "new" / "again.whl")]) == 0
    assert (packed / "new" / "again.whl").read_bytes() == (packed / "model.whl").read_bytes()
    assert [path.name for path in (packed / "new").iterdir()] == ["again.whl"]


def test_a_part_that_is_missing_or_damaged_is_named(packed, capsys):
    piece = packed / "box" / "part-2" / "piece"
    data = piece.read_bytes()
    piece.write_bytes(data[:-1] + b"?")
    assert parcel.main(["join", str(packed / "box"), str(packed / "again")]) == 1
    assert "part-2 once more" in capsys.readouterr().err
    piece.with_name("slip.json").unlink()
    assert parcel.main(["join", str(packed / "box"), str(packed / "again")]) == 1
    assert "Part 2 of 3 has not come" in capsys.readouterr().err
    assert not (packed / "again").exists()


def test_parts_of_two_files_are_not_mixed(packed):
    other = packed / "other.whl"
    other.write_bytes(b"another file")
    parcel.split(other, packed / "elsewhere", 3)
    (packed / "elsewhere" / "part-3").rename(packed / "box" / "part-4")
    with pytest.raises(ValueError, match="parts of 2 files"):
        parcel.join(packed / "box", packed / "again")
    with pytest.raises(ValueError, match="parts of 0 files"):
        parcel.join(packed / "nowhere", packed / "again")


def test_the_script_is_sound_and_its_limits_fit_one_call():
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    limits = re.findall(r"^ +stage \w+ (\d+) ", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(limits) == 5
    assert sum(map(int, limits)) <= MOST_SECONDS - 30


def test_without_a_command_it_says_what_it_does():
    run = subprocess.run(["bash", SCRIPT], capture_output=True, text=True)
    assert run.returncode == 2
    assert "gpu.sh pack" in run.stdout
    assert "gpu.sh run" in run.stdout
