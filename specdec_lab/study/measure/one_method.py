"""What is recorded of one method, by kind of text: the table that a method's notebook shows."""

from __future__ import annotations

from collections.abc import Mapping

from specdec_lab.study.best_k import Speed, foreseen
from specdec_lab.study.measure.progress import table
from specdec_lab.study.measurements import measured


def recorded_of(label: str) -> str:
    """Tokens per forward for every k, alpha by depth, and the best k with its speed-up (tau over
    the price of a step, the prompt not counted) where that price is known: a table a machine, of
    ``label`` in the file of cells.

    A sentence that names the command where nothing is recorded.
    """
    prices = measured("decode")
    tables = [
        f"{machine}\n\n{_table(data, label, prices.get(machine))}"
        for machine, data in measured("acceptance").items()
        if _greedy(data, label)
    ]
    missing = f"{label} is not measured yet: run python -m specdec_lab measure acceptance."
    return "\n\n".join(tables) or missing


def _greedy(data: Mapping, label: str) -> Mapping:
    """The greedy numbers of a method, {} if there are none."""
    found = data["methods"].get(label, {}).get("temperatures", {}).get("0", {})
    return found if "scopes" in found else {}


def _table(data: Mapping, label: str, decode: Mapping | None) -> str:
    found = _greedy(data, label)
    speeds = foreseen(data, decode).get(label, {}) if decode is not None else {}
    head = [
        "texts",
        *(f"tau, k = {k}" for k in found["ks"]),
        "alpha by depth",
        "best k",
        "speed-up, no prompt",
    ]
    rows = [
        [scope, *metrics["tau"], _shares(metrics["alpha"]), *_best(speeds.get(scope))]
        for scope, metrics in found["scopes"].items()
    ]
    return table(head, rows)


def _shares(alphas: list[float | None]) -> str:
    return " ".join("-" if alpha is None else f"{alpha:.2f}" for alpha in alphas)


def _best(speed: Speed | None) -> list[str]:
    """The fastest k and its speed-up with the interval over prompts."""
    if speed is None:
        return ["?", "not measured"]
    low, high = speed.interval
    return [str(speed.k or "none"), f"{speed.speedup:.2f} [{low:.2f}-{high:.2f}]"]
