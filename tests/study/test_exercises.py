"""The checks of the exercises are found by name, each in the file of its notebook."""

import json
import re

import pytest

from project import ROOT
from specdec_lab.study import exercises

CHECKS = [(part, name) for part in exercises.parts() for name in exercises.checks_of(part)]
CALL = re.compile(r"\bcheck_\w+")


@pytest.mark.parametrize(("part", "name"), CHECKS, ids=[name for _, name in CHECKS])
def test_a_check_is_found_by_name_and_says_whose_it_is(part, name):
    check = getattr(exercises, name)
    assert check is getattr(part, name)
    assert check.__doc__.startswith(f"Notebook {part.__name__[-2:]}:")
    assert name in dir(exercises)


def test_no_two_notebooks_share_a_name():
    names = [name for _, name in CHECKS]
    assert len(set(names)) == len(names) > 0


def test_what_does_not_exist_is_no_attribute():
    for name in ("check_nothing", "part_77", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(exercises, name)


def test_every_check_is_asked_for_in_its_notebook():
    for part, name in CHECKS:
        (path,) = (ROOT / "notebooks").glob(f"{part.__name__[-2:]}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        assert name in CALL.findall(code), name
