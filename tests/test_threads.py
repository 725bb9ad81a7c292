"""What is set before torch loads, for each way in; what the user set wins; no clock is tested.

pytest tests/test_threads.py
"""

import json
import os
import subprocess
import sys
import venv

import pytest

from project import ROOT, load_ci
from specdec_lab import threads

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def start(python, *options, code, **env):
    """What the environment is at the end of ``code``, run by a Python that starts with ``env``."""
    command = [str(python), *options, "-c", f"{code}\n{SHOW}"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def venv_python(tmp_path_factory):
    """The Python of a .venv that the set-up script has finished, without packages."""
    folder = tmp_path_factory.mktemp("project")
    venv.create(folder / ".venv", symlinks=True)
    (folder / "specdec_lab").symlink_to(ROOT / "specdec_lab")
    bootstrap = load_ci("bootstrap")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "VENV", folder / ".venv")
        bootstrap.prepare_threads()
    return folder / ".venv" / "bin" / "python"


@pytest.mark.parametrize("module", ["specdec_lab", "specdec_lab.__main__", "specdec_lab.study"])
def test_whoever_imports_the_package_gets_them(module):
    env = start(sys.executable, "-S", code=f"import {module}")  # -S: without .venv's own start
    assert threads.SPIN.items() <= env.items()


def test_whatever_starts_in_the_venv_gets_them(venv_python):
    """The kernel of an editor, jupyter lab, pytest: torch may come first there."""
    env = start(venv_python, code="import sys; assert 'specdec_lab' not in sys.modules")
    assert threads.SPIN.items() <= env.items()
    assert start(venv_python, code="", OMP_WAIT_POLICY="active").keys().isdisjoint(threads.SPIN)


def test_a_venv_whose_project_has_gone_starts_in_silence(venv_python):
    project = venv_python.parents[2]
    (project / "specdec_lab").rename(project / "moved")
    try:
        assert start(venv_python, code="").keys().isdisjoint(threads.SPIN)
    finally:
        (project / "moved").rename(project / "specdec_lab")


def test_an_environment_without_them_is_set_up_again(monkeypatch):
    bootstrap = load_ci("bootstrap")
    before = bootstrap.fingerprint()
    monkeypatch.setattr(bootstrap, "PREPARE_THREADS", "")
    assert bootstrap.fingerprint() != before


def test_the_tests_have_them():
    assert any(threads.understood(name) for name in threads.WAIT)


def test_notebooks_inherit_them(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert load_ci("notebooks").kernel_environment("", None)["GOMP_SPINCOUNT"] == "7"


def prepared(monkeypatch, quota=None, cores=8, **environ):
    """What becomes of an environment on a machine with so many cores."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "cores", lambda: cores)
    threads.prepare(environ)
    return environ


@pytest.mark.parametrize(
    "own",
    [
        {"OMP_WAIT_POLICY": "ACTIVE"},
        {"OMP_WAIT_POLICY": "passive"},
        {"GOMP_SPINCOUNT": "10k", "KMP_BLOCKTIME": "0"},
        {"GOMP_SPINCOUNT": "infinity", "KMP_BLOCKTIME": "200ms"},
    ],
)
def test_what_the_user_set_wins(own, monkeypatch):
    assert prepared(monkeypatch, **own) == own


@pytest.mark.parametrize(
    "nonsense",
    [{"OMP_WAIT_POLICY": "nonsense"}, {"GOMP_SPINCOUNT": ""}, {"KMP_BLOCKTIME": "-1"}],
)
def test_nonsense_counts_as_not_set(nonsense, monkeypatch):
    assert threads.SPIN.items() <= prepared(monkeypatch, **nonsense).items()


def test_too_late_changes_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    environ = {}
    threads.prepare(environ)
    assert environ == {}


@pytest.mark.parametrize(
    ("quota", "number"),
    [(None, None), (0.5, "1"), (1.0, "1"), (3.9, "3"), (8.0, None), (64.0, None)],
)
def test_a_quota_below_the_cores_limits_the_threads(quota, number, monkeypatch):
    assert prepared(monkeypatch, quota).get("OMP_NUM_THREADS") == number


@pytest.mark.parametrize("own", ["2", "2,1", " 4 "])
def test_the_user_s_number_of_threads_wins(own, monkeypatch):
    assert prepared(monkeypatch, 0.5, OMP_NUM_THREADS=own)["OMP_NUM_THREADS"] == own
    assert "OMP_NUM_THREADS" not in prepared(monkeypatch, 0.5, MKL_NUM_THREADS=own)


@pytest.mark.parametrize("own", ["abc", "0", "-3", "", "2,"])
def test_a_number_of_threads_that_is_none_counts_as_not_set(own, monkeypatch):
    assert prepared(monkeypatch, 0.5, OMP_NUM_THREADS=own)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/a/b", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a/b", {"cpu.max": "50000 100000", "a/b/cpu.max": "200000 100000"}, 0.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/host/path", {"cpu.max": "300000 100000"}, 3.0),  # a container sees its group on top
        ("1:name=systemd:/\n4:cpu,cpuacct:/d", {"cpu,cpuacct/d": (50000, 100000)}, 0.5),
        ("4:cpu:/d", {"cpu/d": (-1, 100000), "cpu": (200000, 100000)}, 2.0),
        ("4:cpu:/", {"cpu": (100000, 0)}, None),
        ("0::/", {"cpu.max": "nonsense"}, None),
        ("0::/", {"cpu.max": "50000"}, None),
        ("nonsense", {}, None),
        ("", {}, None),
    ],
)
def test_the_quota_of_a_container(own, files, quota, tmp_path):
    for name, content in files.items():
        path = tmp_path / "groups" / name
        if isinstance(content, str):  # version 2
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n")
        else:
            path.mkdir(parents=True, exist_ok=True)
            for kind, value in zip(("quota", "period"), content, strict=True):
                (path / f"cpu.cfs_{kind}_us").write_text(f"{value}\n")
    (tmp_path / "own").write_text(own)
    assert threads.cpu_quota(f"{tmp_path}/groups", f"{tmp_path}/own") == quota


def test_a_machine_without_control_groups_has_no_quota(tmp_path):
    assert threads.cpu_quota(f"{tmp_path}/groups", f"{tmp_path}/own") is None


def test_cores_are_those_of_the_process(monkeypatch):
    siblings = {0: "0,4", 4: "0,4", 1: "1,5"}  # two threads of one core, one of another
    monkeypatch.setattr(threads, "_read", lambda path: siblings[int(path.split("/")[5][3:])])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: siblings.keys(), raising=False)
    assert threads.cores() == 2


def test_cores_where_no_affinity_is_known(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.cores() == 1


def test_other_programs_are_counted_on_the_cores_of_the_process(tmp_path, monkeypatch):
    """Idle and waiting are left out, and so are other cores; interrupts and stolen time are not."""
    stat = tmp_path / "stat"
    lines = (
        "cpu 9 9 9 9 9 9 9 9 0 0",
        "cpu0 1 2 3 1000 1000 4 5 6 7 8",
        "cpu1 9 9 9 9 9 9 9 9 9 9",
    )
    stat.write_text("\n".join((*lines, "cpu2 100 0 0 7 7 0 0 0 0 0", "intr 1 2 3")))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)
    assert threads._spent(str(stat)) * os.sysconf("SC_CLK_TCK") == 1 + 2 + 3 + 4 + 5 + 6 + 100


def test_what_this_process_does_is_not_other_programs(monkeypatch):
    spent, own = iter([100.0, 101.5]), iter([3.0, 3.5])
    monkeypatch.setattr(threads, "_spent", lambda: next(spent))
    monkeypatch.setattr(threads.time, "process_time", lambda: next(own))
    monkeypatch.setattr(threads.time, "sleep", lambda seconds: None)
    assert threads.held_by_others(0.5) == 2.0


def test_where_the_system_does_not_tell_no_other_program_is_seen(monkeypatch, tmp_path):
    assert threads._spent(f"{tmp_path}/none") == 0
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert threads._spent() == 0
    assert threads.held_by_others(0.0001) == 0
