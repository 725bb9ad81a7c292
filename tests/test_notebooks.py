"""Every notebook of the course runs from top to bottom and says what is stored in it.

make test, or: .venv/bin/pytest -m notebook -k 00
"""

import pytest

from project import load_ci

runner = load_ci("notebooks")
LONGEST_FIRST = runner.paths()[::-1]  # the later ones train and race more


@pytest.mark.notebook
@pytest.mark.parametrize("path", LONGEST_FIRST, ids=lambda path: path.stem)
def test_the_stored_outputs_hold(path, capsys):
    run, found = runner.check(path)
    with capsys.disabled():
        print(f"\n{path.name}: {run.timing()}")
    assert not found, f"{path.name} is not as stored:\n" + "\n".join(found)
