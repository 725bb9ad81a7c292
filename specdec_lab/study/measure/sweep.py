"""Cells that decode the same prompts in turn: what `measure decode` and `compare` are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from specdec_lab.decoding.decode import Generation, generate
from specdec_lab.decoding.records import RowStep
from specdec_lab.decoding.request import DEFAULT_K, MAX_K, whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import classify_mismatch
from specdec_lab.decoding.trace import Trace, repeated_ngram_share
from specdec_lab.proposers import load_proposer
from specdec_lab.study import recordings
from specdec_lab.study.measure.cells import Cell
from specdec_lab.study.stopwatch import in_turn

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target
    from specdec_lab.proposers.base import Proposer

WARM_UP = 6  # tokens
CARD = ("parameters", "megabytes", "training_tokens", "tokens_seen", "training_minutes")


class Sweep:
    """Runs every cell on one prompt after the other.

    ``cells`` are those given, each with its k; plain decoding must be among them at every
    temperature. Cells whose weights are not there are left out: ``missing`` says by label what is
    wrong. Raises ValueError for more drafted tokens than a proposer can draft.
    """

    def __init__(
        self, target: Target, cells: Sequence[Cell], max_new_tokens: int, seed: int = 0
    ) -> None:
        self.target, self.max_new_tokens, self.seed = target, max_new_tokens, seed
        self._proposers: dict[str, Proposer | None] = {}
        self.missing: dict[str, str] = {}
        self.cells = [self._with_k(cell) for cell in cells if self._is_there(cell)]
        self._is_warm = False

    def run(self, ids: Sequence[int], number: int = 0) -> dict[str, dict]:
        """What every cell, by name, did with a prompt in a round of that number: its steps, times
        and text, ready for JSON.
        """
        if not self._is_warm:
            self._warm_up()
        order = in_turn(self.cells, number)
        done = {cell.name: self._decode(cell, ids, self.max_new_tokens) for cell in order}
        return {cell.name: self._report(cell, ids, done) for cell in self.cells}

    def cards(self) -> dict[str, dict]:
        """What it takes to have each cell's proposer: of ``CARD``, what its attribute ``card``
        says.
        """
        cards = {cell.name: getattr(self._proposer(cell), "card", {}) for cell in self.cells}
        return {name: {word: card.get(word) for word in CARD} for name, card in cards.items()}

    def _warm_up(self) -> None:
        """Loads all proposers and runs each once, on ids that belong to no prompt."""
        for cell in self.cells:
            self._decode(cell, [*range(8), *range(8)], WARM_UP)
        self._is_warm = True

    def _is_there(self, cell: Cell) -> bool:
        try:
            self._proposer(cell)
        except OSError as error:
            self.missing[cell.label] = what_is_missing(error)
        return cell.label not in self.missing

    def _with_k(self, cell: Cell) -> Cell:
        """The cell with a number of drafted tokens that its proposer can do."""
        proposer = self._proposer(cell)
        k = getattr(proposer, "default_k", DEFAULT_K) if cell.k is None else cell.k
        most = getattr(proposer, "max_k", None) or MAX_K
        return replace(cell, k=whole_number(f"k of {cell.label}", k, least=0, most=most))

    def _proposer(self, cell: Cell) -> Proposer | None:
        """The one that all cells of the same config share."""
        key = json.dumps(cell.config, sort_keys=True)
        if key not in self._proposers:
            self._proposers[key] = load_proposer(cell.config, self.target)
        return self._proposers[key]

    def _decode(self, cell: Cell, ids: Sequence[int], max_new_tokens: int) -> Generation:
        return generate(
            self.target,
            [ids],
            self._proposer(cell),
            k=cell.k,
            sampling=Sampling(temperature=cell.temperature),
            verify=cell.verify,
            max_new_tokens=max_new_tokens,
            seed=self.seed,
        )

    def _report(
        self, cell: Cell, ids: Sequence[int], done: Mapping[str, Generation]
    ) -> dict[str, object]:
        (found,), (expected,) = done[cell.name].tokens, done[cell.baseline.name].tokens
        text = "equal" if found == expected else "other draws"
        if cell.temperature == 0:
            text = classify_mismatch(self.target, ids, expected, found)
        return {
            "trace": packed(done[cell.name].trace),
            "rep4": repeated_ngram_share(found),
            "text": text,
        }


def what_is_missing(error: OSError) -> str:
    """What an error about weights says, paths from the project's top."""
    return str(error).replace(f"{recordings.PROJECT}/", "")


def packed(trace: Trace) -> dict[str, object]:
    """A trace as JSON knows it."""
    return asdict(trace)


def unpacked(record: Mapping) -> Trace:
    """The trace of a record of `packed`."""
    rows = [[RowStep(**step) for step in row] for row in record["rows"]]
    return Trace(rows, dict(record["seconds"]), record["num_forwards"])
