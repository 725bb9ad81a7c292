"""All methods on the same prompts, in one table: ``python -m specdec_lab compare``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specdec_lab.decoding.request import MAX_K, whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import Prompt, domains, load_prompts
from specdec_lab.study.measure.cells import (
    Cell,
    Config,
    check_config,
    distinct_methods,
    forgetful,
    with_baselines,
)
from specdec_lab.study.measure.progress import Progress
from specdec_lab.study.measure.summary import Run, explained, overview, summarise
from specdec_lab.study.measure.sweep import Sweep
from specdec_lab.study.stopwatch import LEAST_ROUNDS, check_rounds, clocked

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target


def chosen_cells(
    methods: Iterable[Config] = (), k: int | None = None, temperature: float = 0.0
) -> list[Cell]:
    """A cell for each method, a name or a config, and plain decoding; without methods, for every
    one in ``data/measurements/cells.json``.

    ``k`` is every method's own number if left out. Raises ValueError for what does not exist,
    before any model is loaded.
    """
    Sampling(temperature=temperature)
    if k is not None:
        whole_number("k", k, least=0, most=MAX_K)
    named = [_named(config) for config in methods] or distinct_methods()
    for cell in named:
        check_config(cell.config)
    numbers = [0 if cell.is_plain else k for cell in named]
    return with_baselines(
        replace(cell, k=number, temperature=temperature)
        for cell, number in zip(named, numbers, strict=True)
    )


def chosen_prompts(
    text: str | None = None, domain: str | None = None, per_domain: int = 1
) -> list[Prompt]:
    """The reader's own text, or the first prompts of a domain, or of every domain."""
    if text is not None:
        return [Prompt(name="own", domain="own", language="", text=text)]
    whole_number("prompts", per_domain, least=1)
    names = [domain] if domain else domains()
    return [prompt for name in names for prompt in load_prompts(name)[:per_domain]]


def compare(
    load: Callable[[], Target],
    cells: Sequence[Cell],
    prompts: Sequence[Prompt],
    max_new_tokens: int = 64,
    rounds: int = LEAST_ROUNDS,
) -> str:
    """The table of all cells, which decode every prompt in ``rounds`` alternating rounds; ``load``
    gives the target.
    """
    whole_number("max_new_tokens", max_new_tokens, least=1)
    check_rounds(rounds)
    sweep = Sweep(load(), cells, max_new_tokens)
    runs = []
    with Progress("compare", rounds * len(prompts)) as progress:
        for number in range(rounds):
            for prompt in prompts:
                ids = prompt.ids(sweep.target)
                seconds, reports = clocked(lambda ids=ids, n=number: sweep.run(ids, n))
                runs.append(Run(prompt.domain, prompt.name, number, reports))
                progress.step(f"{prompt.name}, round {number + 1}", seconds)
    found = summarise(sweep.cells, runs)
    missing = [f"{label}: {why}" for label, why in sweep.missing.items()]
    about = f"{len(prompts)} prompts, at most {max_new_tokens} tokens each, {rounds} rounds"
    return "\n".join([about, overview(found), explained(found), *missing])


def _named(config: Config) -> Cell:
    """A cell under the name of its method, and of its model if it has one."""
    if isinstance(config, str):
        return Cell(config, forgetful(config), 0 if config == "none" else None)
    words = [str(config[word]) for word in ("method", "model") if word in config]
    return Cell(" ".join(words) or "proposer", forgetful(config))
