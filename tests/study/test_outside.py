"""The comparison with other libraries, with fake ones: no network, no clock is tested.

pytest tests/study/test_outside.py
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.study.measure import environments, outside, outside_peers, proposal_speed, race
from specdec_lab.study.measure.child import Child, PeerLostError
from specdec_lab.study.measure.environments import Environment, NotBuiltError, installed
from specdec_lab.study.measure.outside import Peer
from toys import ToyTarget

FAKE = """
import os

def make(k):
    print("a library that talks")

    def decode(prompts, budget):
        return {"seconds": 2.0, "tokens": [[0] * budget for _ in prompts], "forwards": None}

    def fail():
        raise KeyError("what it wants")

    return {"decode": decode, "fail": fail, "die": lambda: os._exit(3)}

def dying(k):
    return {"decode": lambda prompts, budget: os._exit(3)}

def broken(k):
    import absent_library
"""
ZEROS = [1.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with the fake library."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "fake_peer.py").write_text(FAKE)
    return folder


def test_a_child_answers_and_a_failure_has_a_reason(library):
    child = Child("fake", "fake_peer:make", 3, library)
    heat = child.arm()([[1, 2], [3]], 4)
    assert (heat.seconds, heat.tokens, heat.forwards) == (2.0, [[0] * 4] * 2, None)
    with pytest.raises(PeerLostError, match="KeyError: 'what it wants'") as caught:
        child.ask("fail")
    assert caught.value.name == "fake"
    with pytest.raises(PeerLostError, match="the process ended: a library that talks"):
        child.ask("die")
    child.close()


def test_a_child_that_cannot_start_says_why(library):
    with pytest.raises(PeerLostError, match="No module named 'absent_library'"):
        Child("broken", "fake_peer:broken", 3, library)


def test_the_race_goes_on_without_those_that_fail(library, monkeypatch):
    def fake_install(env, report):
        if env.name == "unbuilt":
            raise NotBuiltError("pip: ERROR: no compiler")
        return library

    prompt = SimpleNamespace(ids=lambda target: [1, 2])
    monkeypatch.setattr(outside, "installed", fake_install)
    monkeypatch.setattr(race, "load_prompts", lambda domain: [prompt])
    monkeypatch.setattr(proposal_speed, "texts", lambda target, n: ([[1, 2]] * n, [1, 2, 0] * 250))
    peers = [("good", "make"), ("unbuilt", "make"), ("weak", "dying"), ("broken", "broken")]
    field = tuple(Peer(n, Environment(n, (f"{n}==1.0",)), f"fake_peer:{f}") for n, f in peers)
    how = {"domains": ["chat"], "k": 2, "prompts": 1, "max_new_tokens": 5, "rounds": 3}
    how |= {"history": [3]}
    said = []
    work = outside.cells(ToyTarget(lambda context: ZEROS, 3), how, field, said.append)
    data = outside.summary(how, {name: cell() for name, cell in work.items()})
    assert list(work) == ["chat 1", "chat 2", "chat 3", "history 3"]
    assert set(data["domains"]["chat"]["rounds"]) == {"ours", "ours_ngram", "ours_suffix", "good"}
    assert data["domains"]["chat"]["same_text"]["good"] == 1
    assert set(data["missing"]) == {"unbuilt", "weak", "broken"}
    assert data["missing"]["unbuilt"] == "pip: ERROR: no compiler"
    assert data["versions"]["good"] == "1.0"
    assert set(data["proposals"][3]) == {"ours"}
    assert data["proposal_ratios"] == {3: {}}
    assert len(said) == 2
    assert "unbuilt did not run: pip: ERROR: no compiler" in outside.table(data)


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """Stands in for pip: notes what it was asked, and fails when told to."""
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path))
    calls = []

    def run(command, env, **options):
        calls.append((command, env))
        if "absent==1" in command:
            error = "Collecting absent\nERROR: No matching distribution found\nWARNING: old pip\n"
            return subprocess.CompletedProcess(command, 1, stdout="", stderr=error)
        target = command[command.index("--target") + 1]
        (tmp_path / target).mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0, stdout="", stderr="")

    monkeypatch.setattr(environments.subprocess, "run", run)
    return calls


def test_a_library_is_installed_once_with_nothing_it_requires(pip, tmp_path):
    env = Environment("lib", ("lib==1.2", "helper==3"))
    folders = [installed(env, lambda line: None) for _ in range(2)]
    assert folders == [tmp_path / "peers" / "lib-1.2"] * 2
    assert folders[0].is_dir()
    ((command, _),) = pip
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-2:] == ["lib==1.2", "helper==3"]


def test_build_tools_are_there_while_it_builds_and_gone_after(pip, tmp_path):
    env = Environment("lib", ("lib==1",), ("cmake==3",), {"CMAKE_ARGS": "-DX={tools}/x {python}"})
    folder = installed(env, lambda line: None)
    (tools, _), (build, variables) = pip
    place = tools[tools.index("--target") + 1]
    assert variables["CMAKE_ARGS"] == f"-DX={place}/x {sys.executable}"
    assert variables["PYTHONPATH"].split(":")[0] == place
    assert "--no-build-isolation" in build
    assert [path.name for path in (tmp_path / "peers").iterdir() if path.is_dir()] == [folder.name]


def test_what_cannot_be_installed_gets_the_reason_and_leaves_nothing(pip, tmp_path):
    for _ in range(2):  # the second time from the note
        with pytest.raises(NotBuiltError, match=r"^pip: ERROR: No matching distribution found$"):
            installed(Environment("absent", ("absent==1",)), lambda line: None)
    assert len(pip) == 1
    (tmp_path / "peers" / "absent-1.failed").unlink()
    with pytest.raises(NotBuiltError):
        installed(Environment("absent", ("absent==1",)), lambda line: None)
    assert len(pip) == 2
    assert [path for path in (tmp_path / "peers").iterdir() if path.is_dir()] == []


class FakeCache:
    """Stands in for Arctic's: remembers what it was told, and always drafts a right and a wrong
    token.
    """

    def __init__(self, max_tree_depth):
        self.told = {}
        self.active = set()

    def start_request(self, request, tokens):
        self.told[request] = list(tokens)
        self.active.add(request)

    def add_active_response(self, request, tokens):
        assert request in self.active
        self.told[request] += tokens

    def stop_request(self, request):
        self.active.remove(request)

    def speculate(self, request, tail, k, factor, offset, least):
        assert self.told[request][-len(tail) :] == tail
        return SimpleNamespace(token_ids=[0, 1, 1, 1, 1][:k])


def test_a_foreign_proposer_is_told_every_token_once_and_changes_nothing(monkeypatch):
    fake = SimpleNamespace(SuffixDecodingCache=FakeCache)
    monkeypatch.setattr(outside_peers, "import_module", lambda name: fake)
    target = ToyTarget(lambda context: ZEROS, 3)
    proposer = outside_peers.ArcticSuffix()
    proposer.remember([2, 2, 1])
    for prompt in ([1, 2, 1], [2]):
        found = generate(target, [prompt], proposer, k=3, max_new_tokens=9)
        assert found.tokens == [[0] * 9]
        assert found.trace.num_forwards == 5  # one of three drafted tokens is right
        told = proposer._cache.told[proposer._request]
        assert told == (prompt + [0] * 9)[: len(told)]
    assert len(proposer._cache.active) == 1


def test_proposals_are_timed_while_a_row_grows_to_its_end():
    steps = list(proposal_speed.lengths(10, 20))
    assert steps[:3] == [(10, 2), (12, 1), (13, 1)]
    assert sum(new for _, new in steps) + 10 >= 20
    row = [1, 2, 3] * 10
    proposer = outside.load_proposer("suffix")
    found = proposal_speed.time_proposals(proposer, [[1, 2, 3]], row, k=4, prompt=20)
    assert found["proposals"] == len(list(proposal_speed.lengths(20, 30)))
    assert found["drafted"] == 4 * found["proposals"]
    assert found["microseconds"] > 0
    assert torch.is_inference_mode_enabled() is False
