"""How many threads torch gets and how they wait for each other: set before torch is loaded.

A step of the model is some 150 pieces of work that all threads share, and after each piece the
threads meet. A thread that waits either spins, which is quick but holds its core, or sleeps. Left
alone, they spin so long that one which has lost its core to another program holds up all others,
piece by piece; sleeping at once is slow on a quiet machine. So they spin for about as long as the
gap between two pieces, then sleep. The OpenMP runtime reads all this
once, when torch loads it. What the user has set wins.

This file needs nothing but Python: each Python of ``.venv`` runs it at its start, see
``.ci/bootstrap.py``, so that torch may also be imported first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping

SPIN = {  # how long, for GNU's runtime (rounds) and for Intel's and LLVM's (milliseconds)
    "GOMP_SPINCOUNT": "3000",
    "KMP_BLOCKTIME": "0",
}
WAIT = ("OMP_WAIT_POLICY", *SPIN)
COUNT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets in ``environ`` what torch's threads need, unless it is set or torch is there already."""
    if "torch" in sys.modules:
        return
    if not understood("OMP_WAIT_POLICY", environ):
        environ.update({name: SPIN[name] for name in SPIN if not understood(name, environ)})
    if not any(understood(name, environ) for name in COUNT):
        quota = cpu_quota()
        if quota is not None and quota < cores():
            environ["OMP_NUM_THREADS"] = str(max(1, int(quota)))


def understood(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether one of the variables above is set to something that an OpenMP runtime can read."""
    value = environ.get(name, "").strip().lower()
    if name == "OMP_WAIT_POLICY":
        return value in ("active", "passive")
    if name in COUNT:  # one number, or one for each depth of nesting
        return all(part.strip().isdecimal() and int(part) > 0 for part in value.split(","))
    return value in ("infinity", "infinite") or value[:1].isdigit()  # 3000, 10k, 200ms


def cores() -> int:
    """The processor cores this process may run on; two threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows
        return os.cpu_count() or 1
    places = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(places.format(cpu)) or cpu for cpu in os.sched_getaffinity(0)})


def held_by_others(seconds: float = 0.25) -> float:
    """How many of those cores other programs hold now; 0.0 where the system does not tell.

    Looks at two moments; what this process does meanwhile is not counted.
    """
    before, own = _spent(), time.process_time()
    time.sleep(seconds)
    others = (_spent() - before) - (time.process_time() - own)
    return max(0.0, others / seconds)


def cpu_quota(groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """The CPUs a container may use at a time, such as 0.5; None where nothing limits them."""
    return min(_quotas(groups, own), default=None)


def _spent(stat: str = "/proc/stat") -> float:
    """Seconds that those cores have worked for anyone, or for a neighbour of a virtual machine."""
    if not hasattr(os, "sched_getaffinity"):
        return 0.0
    places, ticks = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}, 0
    for line in _read(stat).splitlines():
        name, *fields = line.split()
        if name in places:
            user, nice, system, _idle, _waiting, *rest = map(int, fields)
            ticks += user + nice + system + sum(rest[:3])  # and both kinds of interrupts, stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def _quotas(groups: str, own: str) -> Iterator[float]:
    """The limits of this process's control groups and of all above them, in CPUs."""
    for line in _read(own).splitlines():
        _, _, place = line.partition(":")
        controllers, _, path = place.partition(":")  # version 2 has one tree and no controllers
        while True:
            folder = f"{groups}/{controllers}/{path.strip('/')}"
            quota = _read(f"{folder}/cpu.max").split()
            quota = quota or [_read(f"{folder}/cpu.cfs_{what}_us") for what in ("quota", "period")]
            if len(quota) == 2 and all(n.isdecimal() and int(n) > 0 for n in quota):
                yield int(quota[0]) / int(quota[1])
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _read(path: str) -> str:
    """The text of a small file without white space around it; nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
