"""Set-up and launcher: what they decide, without installing anything."""

import subprocess
import sys

import pytest

from project import ROOT, load_ci

bootstrap, lab = load_ci("bootstrap"), load_ci("lab")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that the set-up script takes for the project, every step recorded, none done."""
    for name in ("ROOT", "VENV", "PYTHON", "STAMP"):
        tail = getattr(bootstrap, name).relative_to(ROOT)
        monkeypatch.setattr(bootstrap, name, tmp_path / tail)
    bootstrap.PYTHON.parent.mkdir(parents=True)
    bootstrap.PYTHON.touch()
    done = []
    for step in ("make_venv", "install_torch", "install_packages", "fetch_model"):
        monkeypatch.setattr(bootstrap, step, lambda step=step: done.append(step))
    return done


def interrupt():
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def test_four_steps_and_then_none(project, capsys):
    assert bootstrap.main() == 0
    assert project == ["make_venv", "install_torch", "install_packages", "fetch_model"]
    project.clear()
    assert bootstrap.main() == 0
    assert project == []
    assert capsys.readouterr().out.splitlines()[-1] == "Set-up: everything is there."


def test_an_interrupted_run_is_repeated(project, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "fetch_model", interrupt)
        assert bootstrap.main() == 130
    assert not bootstrap.is_ready()
    project.clear()
    assert bootstrap.main() == 0
    assert project[-1] == "fetch_model"


def test_changed_requirements_call_for_a_new_run(project, monkeypatch, tmp_path):
    assert bootstrap.main() == 0
    changed = tmp_path / "constraints.txt"
    changed.write_text("numpy==1.26.0\n")
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", changed)
    assert not bootstrap.is_ready()


def test_a_failed_command_is_one_sentence(project, monkeypatch, capsys):
    monkeypatch.setattr(
        bootstrap, "fetch_model", lambda: bootstrap.run(sys.executable, "-c", "1/0")
    )
    assert bootstrap.main() == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("Set-up stopped. The command")


def test_a_full_disk_is_one_sentence():
    with pytest.raises(bootstrap.SetupError, match=r"needs 4 GB .* there are 0\.5 GB"):
        bootstrap.check_disk(free_bytes=5e8)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_another_python_is_looked_for_and_else_asked_for(version):
    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.11 to 3\.13 is needed"):
        bootstrap.choose_python(version, which=lambda name: None)
    found = bootstrap.choose_python(version, which=lambda name: sys.executable)
    assert found == sys.executable


def test_the_script_can_be_read_by_an_old_python():
    """Otherwise a Python that is too old answers with a SyntaxError instead of the sentence."""
    import ast

    ast.parse((ROOT / ".ci" / "bootstrap.py").read_text(), feature_version=(3, 8))


def test_torch_wheels_at_hand_are_found(tmp_path):
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert bootstrap.wheel_folders(f"{empty} {full}") == [full]
    assert bootstrap.wheel_folders(full.as_uri()) == [full]
    assert bootstrap.wheel_folders("") == []


@pytest.mark.parametrize(
    ("links", "uv_works", "chosen"),
    [("wheels", True, ["pip"]), ("", True, ["uv"]), ("", False, ["uv", "pip"])],
)
def test_the_way_to_torch(monkeypatch, links, uv_works, chosen):
    tools = []

    def called(command, **_):
        tools.append(command[2])
        return subprocess.CompletedProcess(command, 0 if command[2] == "pip" or uv_works else 1)

    monkeypatch.setattr(bootstrap, "succeeds", lambda *command: command[-1] == "uv")
    monkeypatch.setattr(bootstrap, "wheel_folders", lambda text: [text] if text else [])
    monkeypatch.setattr(bootstrap.subprocess, "run", called)
    monkeypatch.setenv("PIP_FIND_LINKS", links)
    bootstrap.install_torch()
    assert tools == chosen


def test_the_lab_listens_on_this_machine_only_and_opens_the_first_notebook():
    options = lab.arguments(8888)
    assert "--ServerApp.ip=127.0.0.1" in options
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in options
    assert not [option for option in options if "token" in option.lower()]


@pytest.mark.parametrize("shown", [True, False])
def test_the_lab_prints_its_address(monkeypatch, capsys, shown):
    called = {}
    monkeypatch.setattr(lab, "has_browser", lambda: shown)
    monkeypatch.setattr(lab.os, "chdir", lambda folder: None)
    monkeypatch.setattr(lab.os, "execve", lambda *call: called.update(command=call[1], env=call[2]))
    lab.main()
    token = called["env"]["JUPYTER_TOKEN"]
    assert f"/lab/tree/notebooks/00_start_here.ipynb?token={token}" in capsys.readouterr().out
    assert ("--no-browser" in called["command"]) is not shown


def test_no_display_means_no_browser():
    assert not lab.has_browser({}, "linux")
