"""The public names of the package: lazy, complete, and with the version of the project.

pytest tests/test_public_names.py
"""

import subprocess
import sys
import tomllib

import pytest

import specdec_lab
from project import ROOT


@pytest.mark.parametrize("name", specdec_lab.__all__)
def test_every_public_name_is_found_where_it_lives(name):
    found = getattr(specdec_lab, name)
    assert found.__name__ == name
    assert found.__module__.startswith("specdec_lab.")
    assert name in dir(specdec_lab)


def test_the_homes_hold_the_public_names_and_no_others():
    named = [name for names in specdec_lab._HOMES.values() for name in names]
    assert sorted(named) == sorted(specdec_lab.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'generte'"):
        specdec_lab.generte  # noqa: B018


def test_importing_the_package_loads_no_torch():
    code = (
        "import sys; import specdec_lab, specdec_lab.__main__; dir(specdec_lab);"
        "heavy = {'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert specdec_lab.__version__ == project["project"]["version"]
