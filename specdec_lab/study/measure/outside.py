"""Ours beside other people's libraries: n-gram, suffix decoding and llama.cpp.

Each library lives in an environment of its own and runs in a child process (`environments`,
`child`); what cannot be had here is recorded with the reason, and the rest goes on. All arms take
turns. The recording holds

* ``domains``: what `race.domain_summary` says of each, over ``ours`` (plain), ``ours_ngram``,
  ``ours_suffix`` and, as far as they run, ``flashspec_ngram`` (over stock transformers),
  ``arctic_suffix`` and ``suffix_gpu`` (as proposers inside our loop) and ``llama_cpp`` (an outside
  reference: it computes with the file's 4-bit weights, ours with the same weights as float32, so
  its text may differ);
* ``proposals``: tokens of history -> implementation -> microseconds of one suffix proposal: median,
  low, high, and ``first``, which reads prompt and history (`proposal_speed`). ``arctic_calls`` are
  the C++ calls alone, from and to lists, without our tensors around them;
* ``proposal_ratios``: tokens of history -> ours over ``arctic`` and over ``arctic_calls``;
* ``versions`` of the libraries, and ``missing``: arm -> why it did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lab.decoding.store import Report, to_stderr
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure import proposal_speed, race
from specdec_lab.study.measure.child import Child, PeerLostError
from specdec_lab.study.measure.environments import Environment, NotBuiltError, installed
from specdec_lab.study.measure.peers import DOMAINS, our_arm
from specdec_lab.study.measure.progress import table as as_table

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

MAKERS = "specdec_lab.study.measure.outside_peers"
ARCTIC_BUILD = "-DPython_EXECUTABLE={python} -Dnanobind_ROOT={tools}/nanobind/cmake"
PAIRS = {
    "ngram_over_flashspec": ("ours_ngram", "flashspec_ngram"),
    "suffix_over_arctic": ("ours_suffix", "arctic_suffix"),
    "suffix_over_suffix_gpu": ("ours_suffix", "suffix_gpu"),
    "suffix_over_own_plain": ("ours_suffix", "ours"),
    "arctic_over_own_plain": ("arctic_suffix", "ours"),
    "plain_over_llama_cpp": ("ours", "llama_cpp"),
}


@dataclass(frozen=True)
class Peer:
    """An arm of the race: where it is installed, and the function that makes it in its process."""

    arm: str
    environment: Environment
    maker: str


PEERS = (
    Peer("flashspec_ngram", Environment("flashspec", ("flashspec==0.3.1",)), f"{MAKERS}:flashspec"),
    Peer(
        "arctic_suffix",
        Environment(
            "arctic-inference",
            ("arctic-inference==0.3.0",),
            ("setuptools==80.9.0", "cmake==3.31.6", "ninja==1.11.1.4", "nanobind==2.9.2"),
            {"CMAKE_ARGS": ARCTIC_BUILD},
        ),
        f"{MAKERS}:arctic",
    ),
    Peer("suffix_gpu", Environment("suffix-gpu", ("suffix-gpu==0.1.3",)), f"{MAKERS}:suffix_gpu"),
    Peer(
        "llama_cpp",
        Environment(
            "llama-cpp-python",
            ("llama-cpp-python==0.3.36", "diskcache==5.6.3"),
            variables={"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"},
        ),
        f"{MAKERS}:llama_cpp",
    ),
)


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    much = {"prompts": 2, "max_new_tokens": 24, "rounds": 5, "history": [1_000, 10_000, 100_000]}
    little = {"prompts": 1, "max_new_tokens": 16, "rounds": 3, "history": [1_000]}
    libraries = [peer.environment.requirements[0] for peer in PEERS]
    how = little if quick else much
    return {"domains": list(DOMAINS), "k": 4, "libraries": libraries, **how}


def cells(
    target: Target,
    settings: Mapping,
    peers: tuple[Peer, ...] = PEERS,
    report: Report = to_stderr,
) -> dict[str, Callable[[], dict]]:
    """One cell a round and domain, then one for each length of the history."""
    field = _Field(settings["k"])
    for peer in peers:
        field.enter(peer, report)
    arms = _our_arms(target, settings["k"]) | {n: c.arm() for n, c in field.children.items()}
    races = race.cells(arms, target, settings)
    speeds = {
        f"history {size}": (
            lambda size=size: {"proposals": _proposals(field, target, settings, size)}
        )
        for size in settings["history"]
    }
    work = races | speeds
    return {name: (lambda work=work: field.run(arms, work)) for name, work in work.items()}


class _Field:
    """The children that still run, and why the others do not."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.children: dict[str, Child] = {}
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def enter(self, peer: Peer, report: Report) -> None:
        """Install and start a peer, or note why that is not possible."""
        env = peer.environment
        try:
            folder = installed(env, report)
            self.children[peer.arm] = Child(peer.arm, peer.maker, self.k, folder)
            self.versions[env.name] = env.version
        except (NotBuiltError, PeerLostError, OSError) as error:
            self.missing[peer.arm] = str(error)
            report(f"{peer.arm} is left out: {error}")

    def run(self, arms: dict[str, race.Arm], work: Callable[[], dict]) -> dict[str, object]:
        """One cell; a peer that fails in it is dropped, and the cell runs again without it."""
        while True:
            try:
                return work() | {"versions": self.versions, "missing": self.missing}
            except PeerLostError as lost:
                self.children.pop(lost.name).close()
                arms.pop(lost.name, None)
                self.missing[lost.name] = str(lost)


def _our_arms(target: Target, k: int) -> dict[str, race.Arm]:
    methods = {"ours": "none", "ours_ngram": "ngram", "ours_suffix": "suffix"}
    return {
        name: our_arm(target, lambda method=method: load_proposer(method), k)
        for name, method in methods.items()
    }


def _proposals(
    field: _Field, target: Target, settings: Mapping, size: int
) -> dict[str, dict[str, float]]:
    """Microseconds of a proposal over a history of ``size`` tokens, by implementation."""
    history, row = proposal_speed.texts(target, size)
    clocks = {"ours": _own_clock, **dict(_clocks(field))}
    return proposal_speed.compare(clocks, history, row, settings["k"], settings["rounds"])


def _own_clock(history: list[list[int]], row: list[int], k: int) -> dict[str, float]:
    proposer = load_proposer({"method": "suffix", "history_tokens": 2 * proposal_speed.LARGEST})
    return proposal_speed.time_proposals(proposer, history, row, k)


def _clocks(field: _Field) -> Iterator[tuple[str, proposal_speed.Clock]]:
    kinds = {"arctic": ("arctic_suffix", "proposals"), "arctic_calls": ("arctic_suffix", "bare")}
    kinds["suffix_gpu"] = ("suffix_gpu", "proposals")
    for name, (arm, work) in kinds.items():
        if arm in field.children:
            ask = field.children[arm].ask
            yield name, lambda h, r, k, ask=ask, work=work: ask(work, history=h, row=r, k=k)


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded."""
    sizes = {size: results[f"history {size}"]["proposals"] for size in settings["history"]}
    last = list(results.values())[-1]
    how = {name: settings[name] for name in ("k", "max_new_tokens", "rounds")}
    return how | {
        "versions": last["versions"],
        "missing": last["missing"],
        "domains": race.summary(settings, results, PAIRS, right="ours"),
        "proposals": sizes,
        "proposal_ratios": {size: _over_arctic(found) for size, found in sizes.items()},
    }


def _over_arctic(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    ours = found["ours"]["median"]
    names = [name for name in ("arctic", "arctic_calls") if name in found]
    return {name: ours / found[name]["median"] for name in names}


def table(data: Mapping) -> str:
    """Speeds and ratios, microseconds of a proposal, and what is missing."""
    rows = [
        [str(size), name, entry["median"], entry["low"], entry["high"], entry["first"]]
        for size, found in data["proposals"].items()
        for name, entry in found.items()
    ]
    head = ("history", "us a proposal", "median", "low", "high", "first")
    missing = [f"{name} did not run: {reason}" for name, reason in data["missing"].items()]
    return "\n\n".join([race.table(data["domains"]), as_table(head, rows), *missing])
