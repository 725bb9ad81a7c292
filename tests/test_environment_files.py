"""pyproject.toml, environment.yml, the constraints and the set-up script say the same."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from project import ROOT, load_ci
from specdec_lab import threads

CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib", "seaborn-base": "seaborn"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
CONSTRAINTS = (ROOT / ".ci" / "constraints.txt").read_text()


def bounds(lines: list[str]) -> dict[str, str]:
    """Package name -> its version bounds in one spelling."""
    requirements = [Requirement(line) for line in lines]
    return {r.name: ",".join(sorted(map(str, r.specifier))) for r in requirements}


def conda_bounds() -> dict[str, str]:
    """What environment.yml asks for under the names of PyPI, its pip part included."""
    lines = [entry for entry in CONDA["dependencies"] if isinstance(entry, str)]
    (pip_part,) = [entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict)]
    found = bounds(lines + [line for line in pip_part if line != "-e ."])
    return {CONDA_NAMES.get(name, name): bound for name, bound in found.items()}


def pins() -> dict[str, str]:
    """The exact versions of constraints.txt."""
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_environment_yml_lets_threads_wait_as_the_package_does():
    assert CONDA["variables"] == threads.SPIN


def test_environment_yml_agrees_with_pyproject():
    wanted = bounds(PROJECT["dependencies"])
    wanted["python"] = bounds([f"python{PROJECT['requires-python']}"])["python"]
    found = conda_bounds()
    assert found.pop("pip") == ""
    assert found == wanted


def test_42_environment_yml_can_be_solved_on_any_platform():
    assert set(CONDA) == {"name", "channels", "dependencies", "variables"}
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    (pip_part,) = [entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict)]
    assert pip_part[-1] == "-e ."
    for line in CONDA["dependencies"]:
        if isinstance(line, str):  # a name and bounds, no build string
            assert re.fullmatch(r"[a-z0-9-]+([<>=]=?[\d.]+(,<[\d.]+)?)?", line), line


def test_constraints_are_exact_and_leave_torch_to_the_machine():
    assert "torch" not in pins()
    assert all(re.fullmatch(r"\d[\w.]*", version) for version in pins().values())


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement(line)
        for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]
        if not line.startswith("torch")
    ],
    ids=lambda requirement: requirement.name,
)
def test_constraints_pin_every_direct_dependency_within_its_bounds(requirement):
    assert Version(pins()[requirement.name]) in requirement.specifier


def test_39_both_halves_of_the_widgets_are_pinned():
    major = {name: Version(version).major for name, version in pins().items()}
    assert major["ipywidgets"] == 8
    assert major["jupyterlab-widgets"] == 3


def test_the_setup_script_asks_for_the_same_torch_and_python():
    bootstrap = load_ci("bootstrap")
    assert bootstrap.TORCH in PROJECT["dependencies"]
    oldest, newest = bootstrap.OLDEST, bootstrap.NEWEST
    assert PROJECT["requires-python"] == f">=3.{oldest[1]},<3.{newest[1] + 1}"


def test_40_a_missing_glyph_is_an_error_and_turkish_letters_are_there(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure()
    title = figure.suptitle("çğıİöşü ÇĞÖŞÜ α ≤ Δ")
    figure.savefig(tmp_path / "turkish.png")
    title.set_text("漢")
    with pytest.raises(UserWarning, match="Glyph"):
        figure.savefig(tmp_path / "missing.png")
