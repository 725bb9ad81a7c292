"""Every method on the same prompts: acceptance, time by part, and the speed-up over plain decoding.

The cells and the amount are listed in ``data/measurements/cells.json``. All cells decode a prompt
one after the other, plain decoding among them, then the next prompt; every second round goes
backwards (`stopwatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_lab.prompts import Prompt, load_prompts
from specdec_lab.proposers.weights import shipped_hashes
from specdec_lab.study.measure.cells import FILE, Cell, read_plan
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.measure.summary import (
    LOOP,
    Run,
    best_by_domain,
    explained,
    overview,
    summarise,
)
from specdec_lab.study.measure.sweep import CARD, Sweep

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

CARDS, MISSING = "cards", "missing"


def settings(quick: bool, path: Path = FILE) -> dict[str, object]:
    """The plan of the file, shortened for a rough answer, and which weights are there."""
    plan = read_plan(path)
    return asdict(plan.shortened() if quick else plan) | {"weights": shipped_hashes()}


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """What the proposers say of themselves, then all methods on one prompt, prompt by prompt."""
    sweep = Sweep(target, _cells(settings), settings["max_new_tokens"], settings["seed"])
    works: dict[str, Callable[[], dict]] = {CARDS: sweep.cards, MISSING: lambda: sweep.missing}
    for number in range(settings["rounds"]):
        for prompt in _prompts(settings):
            works[f"{prompt.domain}, {prompt.name}, round {number + 1}"] = (
                lambda prompt=prompt, number=number: _run(sweep, prompt, number)
            )
    return works


def _run(sweep: Sweep, prompt: Prompt, number: int) -> dict[str, object]:
    reports = sweep.run(prompt.ids(sweep.target), number)
    return {
        "domain": prompt.domain,
        "prompt": prompt.name,
        "round": number,
        "reports": reports,
    }


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: how much was measured, and `summarise` by cell; under ``missing``, by
    label, why a method could not be measured.
    """
    runs = [Run(**result) for name, result in results.items() if name not in (CARDS, MISSING)]
    missing = results[MISSING]
    found = summarise([c for c in _cells(settings) if c.label not in missing], runs)
    for name, cell in found.items():
        cell["card"] = results[CARDS][name]
    how = {name: value for name, value in settings.items() if name != "cells"}
    return how | {"cells": found, "missing": missing}


def table(data: Mapping) -> str:
    """One line a cell, the best k by domain, what trained methods took, what is missing, and which
    texts go round in circles.
    """
    missing = [f"{label}: {why}" for label, why in data["missing"].items()]
    cells = data["cells"]
    parts = [
        overview(cells),
        explained(cells),
        best_by_domain(cells),
        *_trained(data),
        *missing,
        _loops(data),
    ]
    return "\n\n".join(parts)


def _trained(data: Mapping) -> list[str]:
    """A table of the methods whose proposers have a card, if there are any."""
    cards = {cell["label"]: cell["card"] for cell in data["cells"].values()}
    rows = [[label, *card.values()] for label, card in cards.items() if any(card.values())]
    return [as_table(("method", *CARD), rows)] if rows else []


def _loops(data: Mapping) -> str:
    plain = next(iter(data["cells"].values()))
    loops = [p["prompt"] for p in plain["prompts"] if p["rep4"] > LOOP]
    if not loops:
        return f"No text of plain decoding repeats more than {LOOP:.0%} of its 4-grams."
    return f"Texts that repeat more than {LOOP:.0%} of their 4-grams: {', '.join(loops)}."


def _cells(settings: Mapping) -> list[Cell]:
    return [Cell(**cell) for cell in settings["cells"]]


def _prompts(settings: Mapping) -> list[Prompt]:
    domains = settings["domains"]
    return [prompt for d in domains for prompt in load_prompts(d)[: settings["prompts"]]]
