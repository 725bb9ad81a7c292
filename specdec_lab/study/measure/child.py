"""A peer in a child process: the lab asks it for a piece of work, it answers with what it took.

Requests and answers are lines of JSON on stdin and stdout; whatever the library prints goes to
stderr. Run as ``python -m specdec_lab.study.measure.child module:function k``: the function makes
the peer, a mapping from the name of a piece of work to a function from a request to an answer.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from specdec_lab.study.measure.race import Arm, Heat

Work = Callable[..., dict]


class PeerLostError(RuntimeError):
    """A peer cannot go on; the message is one sentence that says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Child:
    """A running peer: the parent's side. Raises PeerLostError once it does not answer."""

    def __init__(self, name: str, maker: str, k: int, folder: Path) -> None:
        self.name = name
        self._log = folder.with_suffix(".log")
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, maker, str(k)],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self._read()  # it is ready
        except PeerLostError:
            self.close()
            raise

    def ask(self, work: str, **request: object) -> dict:
        """The answer to a request, a mapping that JSON knows."""
        try:
            self._process.stdin.write(json.dumps({"work": work, **request}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerLostError(self.name, self._reason()) from error
        return self._read()

    def arm(self) -> Arm:
        """The peer as an arm of a race, by the clock in its own process."""

        def arm(prompts: list[list[int]], budget: int) -> Heat:
            return Heat(**self.ask("decode", prompts=prompts, budget=budget))

        return arm

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):  # it may have ended by itself
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _read(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise PeerLostError(self.name, self._reason())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerLostError(self.name, answer["error"])
        return answer

    def _reason(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() or ["no word"]
        return f"the process ended: {lines[-1].strip()}"


def main(maker: str, k: int) -> None:
    """The child's side: answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints is no answer

    def answer(work: Callable[[], Mapping]) -> None:
        try:
            found = work()
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {first_line}"}
        print(json.dumps(found), file=answers, flush=True)

    peer: dict[str, Work] = {}
    answer(lambda: peer.update(_made(maker, k)) or {"ready": sorted(peer)})
    for line in sys.stdin:
        request = json.loads(line)
        answer(lambda request=request: peer[request.pop("work")](**request))


def _made(maker: str, k: int) -> Mapping[str, Work]:
    module, _, name = maker.partition(":")
    return getattr(importlib.import_module(module), name)(k)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
