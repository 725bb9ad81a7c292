"""Which k is fastest, by method and domain: tokens per forward from `measure acceptance`, the price
of a step from `measure decode`.

Acceptance is known for every k and on many prompts, clocks only for some k on a few. But a step's
price hardly depends on the text, and along k it is nearly a line; so both together tell the
speed-up without the prompt, tau(k) over the price of a step in plain steps, for every k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

COPYING = ("ngram", "suffix")  # what they take does not depend on k


@dataclass(frozen=True, slots=True)
class Speed:
    """A method in one scope: ``k`` is the fastest of ``ks``, 0 where plain decoding is faster;
    ``interval`` is its speed-up's over prompts, with the price taken as known.
    """

    ks: list[int]
    speedups: list[float]
    k: int
    speedup: float
    interval: tuple[float, float]


def foreseen(acceptance: Mapping, decode: Mapping) -> dict[str, dict[str, Speed]]:
    """By label and scope what every method would reach greedily, the prompt not counted; methods
    without a measured price are left out.
    """
    found = {}
    for label, method in acceptance["methods"].items():
        greedy = method["temperatures"].get("0", {})
        if "scopes" in greedy and price_of_steps(decode, label, [1]) is not None:
            prices = price_of_steps(decode, label, greedy["ks"])
            found[label] = {
                scope: _speed(greedy["ks"], metrics, prices)
                for scope, metrics in greedy["scopes"].items()
            }
    return found


def _speed(ks: list[int], metrics: Mapping, prices: list[float]) -> Speed:
    speedups = [tau / price for tau, price in zip(metrics["tau"], prices, strict=True)]
    best = int(np.argmax(speedups))
    if speedups[best] <= 1:
        return Speed(ks, speedups, 0, 1.0, (1.0, 1.0))
    bounds = metrics["tau_interval"][best] or [metrics["tau"][best]] * 2
    low, high = (bound / prices[best] for bound in bounds)
    return Speed(ks, speedups, ks[best], speedups[best], (low, high))


def price_of_steps(decode: Mapping, label: str, ks: list[int]) -> list[float] | None:
    """What a step of a method with each k takes, in plain steps: the line through the proposals
    that were measured, and the scoring of k + 1 rows by any method; None if it was not measured.
    """
    greedy = [c for c in decode["cells"].values() if not c["temperature"]]
    ours = {c["k"]: _seconds(c)["propose"] for c in greedy if c["label"] == label}
    if not ours:
        return None
    rest = _by_k(greedy)
    scored = np.interp(ks, list(rest), list(rest.values()))
    is_flat = _method(greedy, label) in COPYING
    return ((_proposals(ours, ks, is_flat) + scored) / _plain_step(greedy)).tolist()


def _proposals(measured: Mapping[int, float], ks: list[int], is_flat: bool) -> np.ndarray:
    """Seconds of a proposal with each k: a line through what was measured, never falling; of one
    measured k the line through 0, or a flat one.
    """
    xs, ys = np.array(list(measured)), np.array(list(measured.values()))
    if len(xs) == 1:
        return np.full(len(ks), ys[0]) if is_flat else ys[0] / xs[0] * np.array(ks)
    slope, start = np.polyfit(xs, ys, 1)
    if slope < 0:
        return np.full(len(ks), ys.mean())
    return np.maximum(start + slope * np.array(ks), 0)


def _by_k(greedy: list[Mapping]) -> dict[int, float]:
    """Seconds of a step without its proposal, by k in rising order, mean over methods."""
    found: dict[int, list[float]] = {}
    for cell in greedy:
        seconds = _seconds(cell)
        found.setdefault(cell["k"], []).append(sum(seconds.values()) - seconds["propose"])
    return {k: sum(found[k]) / len(found[k]) for k in sorted(found)}


def _plain_step(greedy: list[Mapping]) -> float:
    return sum(_seconds(greedy[0]).values())


def _seconds(cell: Mapping) -> Mapping[str, float]:
    return cell["scopes"]["all"]["step_seconds"]


def _method(greedy: list[Mapping], label: str) -> str:
    return next(c["config"]["method"] for c in greedy if c["label"] == label)
