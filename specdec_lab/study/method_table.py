"""The table over all methods, from what `measure decode` and `measure acceptance` recorded: what
a method takes, how much of its drafts is taken, and what is left on the clock.

Each function returns a table for ``print``; a part of one recording is enough for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec_lab.study.best_k import Speed, foreseen
from specdec_lab.study.figures.measured.looks import look
from specdec_lab.study.figures.measured.methods import NAMES
from specdec_lab.study.measure.progress import table

DOMAINS = ("chat", "code", "json", "creative", "quotation")


def what_it_takes(decode: Mapping) -> str:
    """Parameters and size of what drafts, what it learned from, and c: the time of one drafted
    token (of a proposal, where the draft comes whole) in plain steps, at the largest k measured.
    """
    rows = []
    for label, cells in _greedy(decode).items():
        cell = max(cells, key=lambda cell: cell["k"])
        card, cost = cell["card"], cell["scopes"]["all"]["draft_cost"]
        rows.append(
            [
                _name(label, cell["config"]),
                _in(1e6, card.get("parameters")),
                _in(1, card.get("megabytes")),
                _in(1e3, card.get("training_tokens")),
                _in(1e6, card.get("tokens_seen")),
                _in(1, card.get("training_minutes")),
                cell["k"],
                cost,
                cost / cell["k"],
            ]
        )
    head = ("method", "M params", "MB", "k tokens", "M seen", "minutes", "k", "c draft", "c token")
    return table(head, rows)


def how_far(acceptance: Mapping, domains: Sequence[str] = DOMAINS) -> str:
    """Greedy tau by domain with its interval over prompts, with 4 drafted tokens or what comes
    nearest; a star where it beats the better copying method for certain.
    """
    rows = []
    for label, method in acceptance["methods"].items():
        greedy = method["temperatures"].get("0", {})
        if "scopes" not in greedy:
            continue
        k = 4 if 4 in greedy["ks"] else max(greedy["ks"])
        place = greedy["ks"].index(k)
        rows.append(
            [
                _name(label, method["config"]),
                k,
                *(_tau(method, greedy["scopes"].get(domain), domain, place) for domain in domains),
            ]
        )
    return table(["tau", "k", *(NAMES.get(d, d) for d in domains)], rows)


def _tau(method: Mapping, scope: Mapping | None, domain: str, place: int) -> str | None:
    if scope is None:
        return None
    low, high = scope["tau_interval"][place] or [scope["tau"][place]] * 2
    wins = method.get("against_copying", {}).get(domain, {}).get("wins")
    return f"{scope['tau'][place]:.2f} {low:.2f}-{high:.2f}{'*' if wins else ' '}"


def best_k(acceptance: Mapping, decode: Mapping, domains: Sequence[str] = DOMAINS) -> str:
    """The k of each domain that `foreseen` finds, with its speed-up, the prompt not counted; a dash
    where plain decoding is faster.
    """
    configs = {label: method["config"] for label, method in acceptance["methods"].items()}
    rows = [
        [_name(label, configs[label]), *(_foreseen(scopes.get(domain)) for domain in domains)]
        for label, scopes in foreseen(acceptance, decode).items()
    ]
    return table(["foreseen, without the prompt", *(NAMES.get(d, d) for d in domains)], rows)


def _foreseen(speed: Speed | None) -> str | None:
    return _speed(speed.k, speed.speedup) if speed and speed.k else None


def _speed(k: int, speedup: float) -> str:
    return f"{speedup:.2f} (k {k})"


def _greedy(decode: Mapping) -> dict[str, list[Mapping]]:
    """The cells that drafted greedily, by label."""
    found: dict[str, list[Mapping]] = {}
    for cell in decode["cells"].values():
        if cell["k"] and not cell["temperature"]:
            found.setdefault(cell["label"], []).append(cell)
    return found


def _name(label: str, config: str | Mapping[str, object]) -> str:
    return look(label, config).label


def _in(unit: float, value: float | None) -> str | None:
    """A number in a unit, with three significant digits."""
    return None if value is None else f"{value / unit:.3g}"
