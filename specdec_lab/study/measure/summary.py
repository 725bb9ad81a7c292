"""From the runs of a sweep to its table: metrics, speed-ups over plain decoding, and their spread.

A speed-up is the ratio of tokens per second of whole requests, the reading of the prompt included,
all prompts of a scope together, taken within each round: the median over the rounds is reported,
with the lowest and the highest. The interval is another thing: it says how far other prompts of the
same kind may lie (bootstrap over prompts). `without_prompt` is tau over the price of a step. A
speed-up that exceeds tau by more than its rounds' spread is a disturbed clock, and `refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from specdec_lab.decoding.trace import Trace
from specdec_lab.study.measure.cells import Cell
from specdec_lab.study.measure.progress import table
from specdec_lab.study.measure.sweep import unpacked
from specdec_lab.study.speedup import REFUSED
from specdec_lab.study.stopwatch import Spread

ALL, WITHOUT_LOOPS = "all", "without_loops"
LOOP = 0.3  # rep4 of plain decoding above which a text goes round in circles
PARTS = ("propose", "score", "verify", "other")
RESAMPLES, LEVEL = 2000, 0.95


@dataclass(frozen=True, slots=True)
class Run:
    """What all cells did with one prompt in one round: cell name -> report of `Sweep.run`."""

    domain: str
    prompt: str
    round: int
    reports: Mapping[str, dict]


class Decoded:
    """One cell on the prompts of one scope, in all rounds; ValueError where a proposer took other
    steps in a later round, as it remembers the answers.
    """

    def __init__(self, runs: Sequence[Run], cell: Cell) -> None:
        self.prompts = list(dict.fromkeys((run.domain, run.prompt) for run in runs))
        self.rounds = sorted({run.round for run in runs})
        place = {(run.domain, run.prompt, run.round): run.reports[cell.name] for run in runs}
        self.reports = [place[(*prompt, self.rounds[0])] for prompt in self.prompts]
        self.traces = [
            [unpacked(place[(*prompt, number)]["trace"]) for prompt in self.prompts]
            for number in self.rounds
        ]  # by round, then prompt
        self.first = Trace.pool(self.traces[0])
        self.tokens = np.array([trace.num_tokens for trace in self.traces[0]])  # (prompts,)
        self.steps = np.array([len(trace.steps) for trace in self.traces[0]])  # (prompts,)
        self.seconds = np.array(
            [[trace.total_seconds for trace in row] for row in self.traces]
        )  # (rounds, prompts)
        if any(len(Trace.pool(row).steps) != self.steps.sum() for row in self.traces):
            raise ValueError(
                f"{cell.name} took other steps in a later round; let it remember nothing between "
                "requests"
            )

    @property
    def speeds(self) -> np.ndarray:
        """Tokens per second in each round, (rounds,)."""
        return self.tokens.sum() / self.seconds.sum(1)

    def step_seconds(self) -> dict[str, float]:
        """Seconds of a step by part: means of a round, and their median over the rounds."""
        whole = [Trace.pool(row) for row in self.traces]
        return {
            part: median(trace.seconds.get(part, 0.0) / trace.num_forwards for trace in whole)
            for part in PARTS
        }


def summarise(cells: Iterable[Cell], runs: Sequence[Run]) -> dict[str, dict]:
    """By cell name: its settings, its metrics in every scope, and some prompt by prompt.

    Scopes are the domains, all prompts, and those whose plain text does not loop. Plain decoding is
    the first cell.
    """
    scopes = _scopes(runs)
    return {cell.name: _summary(cell, scopes) for cell in cells}


def _scopes(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of every domain, of all, and of the prompts whose plain text does not loop."""
    by_domain = {
        domain: [run for run in runs if run.domain == domain]
        for domain in dict.fromkeys(run.domain for run in runs)
    }
    straight = [run for run in runs if not _loops(run)]
    return by_domain | {ALL: list(runs)} | ({WITHOUT_LOOPS: straight} if straight else {})


def _loops(run: Run) -> bool:
    plain = next(iter(run.reports.values()))
    return plain["rep4"] > LOOP


def _summary(cell: Cell, scopes: Mapping[str, Sequence[Run]]) -> dict[str, object]:
    pairs = {
        name: (Decoded(runs, cell), Decoded(runs, cell.baseline)) for name, runs in scopes.items()
    }
    config = {"method": cell.config} if isinstance(cell.config, str) else dict(cell.config)
    return {
        "label": cell.label,
        "config": config,
        "k": cell.k,
        "temperature": cell.temperature,
        "verify": cell.verify,
        "scopes": {name: _metrics(*pair) for name, pair in pairs.items()},
        "prompts": _by_prompt(*pairs[ALL]),
    }


def _metrics(ours: Decoded, plain: Decoded) -> dict[str, object]:
    """Every number of one cell in one scope."""
    trace, steps, plain_steps = ours.first, ours.step_seconds(), plain.step_seconds()
    speedup = Spread.of((ours.speeds / plain.speeds).tolist())
    return {
        "num_prompts": len(ours.prompts),
        "num_tokens": trace.num_tokens,
        "num_forwards": trace.num_forwards,
        "tau": trace.tau,
        "tau_interval": interval(
            len(ours.prompts),
            lambda pick: ours.tokens[pick].sum(1) / ours.steps[pick].sum(1),
        ),
        "alpha": trace.alpha,
        "acceptance_by_position": trace.acceptance_by_position,
        "alpha_by_position": trace.alpha_by_position,
        "draft_acceptance_rate": trace.draft_acceptance_rate,
        "draft_coverage": trace.draft_coverage,
        "tokens_per_second": median(ours.speeds.tolist()),
        "speedup": speedup.median,
        "speedup_rounds": [speedup.low, speedup.high],
        "speedup_interval": _speedup_interval(ours, plain),
        "step_seconds": steps,
        "draft_cost": steps["propose"] / sum(plain_steps.values()),
        "ttft": trace.ttft,
        "itl": trace.itl,
        "rep4": mean(report["rep4"] for report in ours.reports),
        "same_text": _counted(report["text"] for report in ours.reports),
    }


def _by_prompt(ours: Decoded, plain: Decoded) -> list[dict[str, object]]:
    """What is plotted prompt by prompt."""
    ratios = _throughput(ours) / _throughput(plain)
    found = zip(ours.prompts, ours.traces[0], ours.reports, ratios.tolist(), strict=True)
    return [
        {
            "domain": domain,
            "prompt": prompt,
            "num_tokens": trace.num_tokens,
            "tau": trace.tau,
            "alpha": trace.alpha,
            "speedup": ratio,
            "rep4": report["rep4"],
            "text": report["text"],
        }
        for (domain, prompt), trace, report, ratio in found
    ]


def _throughput(decoded: Decoded) -> np.ndarray:
    """Tokens per second of every prompt, by its median time over the rounds, (prompts,)."""
    return decoded.tokens / np.median(decoded.seconds, axis=0)


def _speedup_interval(ours: Decoded, plain: Decoded) -> list[float] | None:
    times = [np.median(decoded.seconds, axis=0) for decoded in (ours, plain)]  # (prompts,)

    def ratio(pick: np.ndarray) -> np.ndarray:
        speeds = [
            decoded.tokens[pick].sum(1) / seconds[pick].sum(1)
            for decoded, seconds in zip((ours, plain), times, strict=True)
        ]
        return speeds[0] / speeds[1]

    return interval(len(ours.prompts), ratio)


def interval(
    num_prompts: int, statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0
) -> list[float] | None:
    """Bootstrap interval (2.5 % to 97.5 %) over prompts; None for fewer than two.

    ``statistic`` turns prompt numbers (resamples, num_prompts), drawn with replacement, into one
    value a resample.
    """
    if num_prompts < 2:
        return None
    picks = np.random.default_rng(seed).integers(num_prompts, size=(RESAMPLES, num_prompts))
    return np.quantile(statistic(picks), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()


def _counted(words: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def refused(scope: Mapping) -> bool:
    """Whether the speed-up of a cell in a scope exceeds tau by more than its rounds' spread."""
    return Spread(scope["speedup"], *scope["speedup_rounds"]).exceeds(scope["tau"])


def without_prompt(cell: Mapping, plain: Mapping, scope: str) -> float:
    """The speed-up of a cell with the reading of the prompt left out: tau over the price of a step
    in steps of ``plain``.
    """
    ours, theirs = (sum(c["scopes"][scope]["step_seconds"].values()) for c in (cell, plain))
    return cell["scopes"][scope]["tau"] * theirs / ours


def overview(cells: Mapping[str, dict]) -> str:
    """One line a cell: acceptance over all prompts, and the speed-up in every domain and over all,
    with its rounds and its interval over prompts.
    """
    domains = _domains(cells)
    shown = domains if len(domains) > 1 else []
    head = ["method", "k", "T", "tau", "alpha", "c", "tokens/s"]
    head += [*shown, "speed-up", "rounds", "95 %", "same text"]
    return table(head, [_line(cell, shown) for cell in cells.values()])


def _domains(cells: Mapping[str, dict]) -> list[str]:
    scopes = next(iter(cells.values()))["scopes"]
    return [name for name in scopes if name not in (ALL, WITHOUT_LOOPS)]


def explained(cells: Mapping[str, dict]) -> str:
    """What the speed-ups of `overview` contain, and why some are missing."""
    found = [scope for cell in cells.values() for scope in cell["scopes"].values()]
    about = (
        "speed-up: whole requests over plain decoding, reading the prompt included; median of "
        "alternating rounds. rounds: lowest-highest. 95 %: over prompts."
    )
    return "\n".join([about, *[REFUSED] * any(map(refused, found))])


def _line(cell: Mapping, domains: Iterable[str]) -> list[str | float | None]:
    whole = cell["scopes"][ALL]
    return [
        cell["label"],
        cell["k"],
        f"{cell['temperature']:g}",
        *(whole[name] for name in ("tau", "alpha", "draft_cost", "tokens_per_second")),
        *(_speedup(cell["scopes"][domain]) for domain in domains),
        _speedup(whole),
        _span(whole["speedup_rounds"]),
        _span(whole["speedup_interval"]),
        same_text(whole["same_text"]),
    ]


def _speedup(scope: Mapping) -> str | float:
    return "refused" if refused(scope) else scope["speedup"]


def best_by_domain(cells: Mapping[str, dict]) -> str:
    """A line a method: in every domain the fastest k and its speed-up, with the prompt and, in
    brackets, without.
    """
    domains = _domains(cells)
    by_label: dict[str, list[Mapping]] = {}
    for cell in cells.values():
        if cell["k"] and not cell["temperature"]:
            by_label.setdefault(cell["label"], []).append(cell)
    plain = next(iter(cells.values()))
    rows = [[label, *(_best(f, plain, d) for d in domains)] for label, f in by_label.items()]
    return table(["best k", *domains], rows)


def _best(cells: Sequence[Mapping], plain: Mapping, domain: str) -> str:
    best = max(cells, key=lambda cell: cell["scopes"][domain]["speedup"])
    found = best["scopes"][domain]
    if refused(found):
        return f"{best['k']}: refused"
    return f"{best['k']}: {found['speedup']:.2f} ({without_prompt(best, plain, domain):.2f})"


def _span(bounds: Sequence[float] | None) -> str | None:
    return bounds and f"{bounds[0]:.2f}-{bounds[1]:.2f}"


def same_text(counts: Mapping[str, int]) -> str:
    """How many texts are equal to plain decoding's; sampled ones need not be: the law is."""
    if counts.keys() <= {"equal", "other draws"} and counts.get("other draws"):
        return "same law"
    others = "".join(f", {n} {word}" for word, n in counts.items() if word != "equal")
    return f"{counts.get('equal', 0)} of {sum(counts.values())}{others}"
