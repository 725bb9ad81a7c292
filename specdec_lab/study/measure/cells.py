"""The cells of a decoding sweep: ways to decode, listed in a file that everybody may add to.

``data/measurements/cells.json`` says on how many prompts of which domains, how many tokens long,
and how: a line for each method, its options and its numbers of drafted tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_lab.decoding.request import MAX_K, whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import check_rule
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.study import recordings
from specdec_lab.study.stopwatch import LEAST_ROUNDS

FILE = recordings.PROJECT / "data" / "measurements" / "cells.json"
MOST_CELLS = 40  # plain decoding included; a sweep of more takes longer than anybody waits
PLAN_WORDS = {"about", "domains", "prompts", "max_new_tokens", "rounds", "seed", "cells"}
CELL_WORDS = {"label", "method", "k", "temperature", "verify"}
Config = str | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to decode. ``config`` is what `load_proposer` takes; ``k`` is None for the proposer's
    own number.
    """

    label: str
    config: Config
    k: int | None = None
    temperature: float = 0.0
    verify: str = "auto"

    @property
    def name(self) -> str:
        """The label with all that departs from the ordinary, such as "suffix, k = 8, T = 1"."""
        parts = [self.label]
        parts += [f"k = {self.k}"] if self.k else []
        parts += [f"T = {self.temperature:g}"] if self.temperature else []
        parts += [self.verify] if self.verify != "auto" else []
        return ", ".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is drafted: what the others are compared with."""
        return self.k == 0

    @property
    def baseline(self) -> Cell:
        """Plain decoding under the same sampling."""
        return Cell("plain", "none", 0, self.temperature)


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep: every cell decodes the first ``prompts`` evaluation prompts of every domain."""

    domains: list[str]
    prompts: int
    max_new_tokens: int
    rounds: int
    seed: int
    cells: list[Cell]

    def shortened(self) -> Plan:
        """A rough answer in a minute or two: a prompt in two domains, short, in few rounds."""
        few = {"prompts": 1, "max_new_tokens": 12, "rounds": LEAST_ROUNDS}
        return replace(self, domains=self.domains[:2], **few)


def read_plan(path: Path = FILE) -> Plan:
    """The sweep that a file describes; ValueError with one sentence for anything wrong in it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _check_words(found, PLAN_WORDS, PLAN_WORDS - {"about", "seed"})
        for domain in _listed("domains", found["domains"]):
            load_prompts(domain)
        least = {"prompts": 1, "max_new_tokens": 1, "rounds": LEAST_ROUNDS}
        counts = {name: whole_number(name, found[name], least=n) for name, n in least.items()}
        cells = [cell for line in _listed("cells", found["cells"]) for cell in _cells_of(line)]
        seed = whole_number("seed", found.get("seed", 0), least=0)
        return Plan(found["domains"], **counts, seed=seed, cells=with_baselines(cells))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def with_baselines(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in order, plain decoding at every temperature first.

    Raises ValueError for two cells of one name and for more than ``MOST_CELLS``.
    """
    cells = list(cells)
    drafting = [cell for cell in cells if not cell.is_plain]
    names = [cell.name for cell in drafting]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'two cells are called "{name}"; give one of them another "label"')
    whole = [*dict.fromkeys(cell.baseline for cell in cells), *drafting]
    if len(whole) > MOST_CELLS:
        raise ValueError(f"a sweep has at most {MOST_CELLS} cells, not {len(whole)}; split it")
    return whole


def distinct_methods(path: Path = FILE) -> list[Cell]:
    """Every method of a file of cells once, its first cell standing for all."""
    found: dict[str, Cell] = {}
    for cell in read_plan(path).cells:
        if not cell.is_plain:
            found.setdefault(cell.label, cell)
    return list(found.values())


def forgetful(config: Config) -> Config:
    """The config of a method that remembers nothing between requests, unless it says otherwise: in
    the second round of a sweep it would remember the answers.
    """
    method = config if isinstance(config, str) else config.get("method")
    if method != "suffix":
        return config
    options = {"method": method} if isinstance(config, str) else dict(config)
    return {"remember_outputs": False} | options


def check_config(config: Config) -> None:
    """ValueError unless `load_proposer` knows the method and its options; loads no model."""

    def not_yet() -> None:
        raise _ModelWanted

    with suppress(_ModelWanted):
        load_proposer(config, not_yet)


class _ModelWanted(Exception):
    """The config is good so far, and needs a model to go on."""


def _cells_of(line: object) -> list[Cell]:
    """The cells of one line of the file: one for each k."""
    _check_words(line, CELL_WORDS, {"method", "k"})
    config, numbers = line["method"], line["k"]
    check_config(config)
    label = line.get("label", config if isinstance(config, str) else config["method"])
    temperature, verify = line.get("temperature", 0.0), line.get("verify", "auto")
    Sampling(temperature=temperature)
    check_rule(verify)
    numbers = numbers if isinstance(numbers, list) else [numbers]
    ks = [whole_number(f"k of {label}", k, least=0, most=MAX_K) for k in numbers]
    return [Cell(label, forgetful(config), k, float(temperature), verify) for k in ks]


def _check_words(found: object, known: set[str], needed: set[str]) -> None:
    if not isinstance(found, Mapping):
        raise ValueError(f"{found!r} must be an object with {', '.join(sorted(needed))}")
    for word in sorted(found.keys() - known):
        raise ValueError(f"there is no option {word!r}; use {', '.join(sorted(known))}")
    for word in sorted(needed - found.keys()):
        raise ValueError(f"{word!r} is missing in {json.dumps(found)[:60]}")


def _listed(name: str, value: object) -> Sequence:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name!r} must be a list with something in it, not {value!r}")
    return value
