"""All methods on the same prompts, in one table: ``python -m specdec_lab compare``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from specdec_lab.decoding.request import MAX_K, whole_number
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.prompts import Prompt, domains, load_prompts
from specdec_lab.study.measure.cells import (
    Cell,
    Config,
    check_config,
    distinct_methods,
    with_baselines,
)
from specdec_lab.study.measure.progress import Progress
from specdec_lab.study.measure.summary import Run, overview, summarise
from specdec_lab.study.measure.sweep import Sweep

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
) -> str:
    """The table of all cells, which decode every prompt once, one cell after the other; ``load``
    gives the target.
    """
    whole_number("max_new_tokens", max_new_tokens, least=1)
    sweep = Sweep(load(), cells, max_new_tokens)
    runs = []
    with Progress("compare", len(prompts)) as progress:
        for prompt in prompts:
            start = perf_counter()
            reports = sweep.run(prompt.ids(sweep.target))
            runs.append(Run(prompt.domain, prompt.name, 0, reports))
            progress.step(prompt.name, perf_counter() - start)
    missing = [f"{label}: {why}" for label, why in sweep.missing.items()]
    return "\n".join([overview(summarise(sweep.cells, runs)), *missing])


def _named(config: Config) -> Cell:
    """A cell under the name of its method, and of its model if it has one."""
    if isinstance(config, str):
        return Cell(config, config, 0 if config == "none" else None)
    words = [str(config[word]) for word in ("method", "model") if word in config]
    return Cell(" ".join(words) or "proposer", config)
