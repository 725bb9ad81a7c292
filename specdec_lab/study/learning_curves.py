"""What more data brings: held-out acceptance of one recipe, trained on more and more of the corpus.

Training writes a curve beside its weights. Those of the milestones lie in
``data/measurements/learning/<method>_<tokens>.json``, those of the weights that ship with the
project beside these in ``data/weights``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from specdec_lab.study import recordings
from specdec_lab.study.measurements import FOLDER

MILESTONES, SHIPPED = f"{FOLDER}/learning", "data/weights"
Z = 1.96  # standard errors to either side of a number that hold 95 %


def read_curves(folder: str | Path) -> list[dict]:
    """The curves of a folder, by method and then by tokens: ``method``, ``tokens`` of the texts,
    ``steps``, ``minutes`` (None where the file does not say) and ``curve``, what `Trainer` kept.

    ``folder`` is a path, or relative to the project's top. [] if there are none.
    """
    found = [_curve(path) for path in sorted((recordings.PROJECT / folder).glob("*.json"))]
    return sorted(found, key=lambda one: (one["method"], one["tokens"]))


def _curve(path: Path) -> dict:
    whole = json.loads(path.read_text(encoding="utf-8"))
    about, curve = whole["about"], whole["curve"]
    return {
        "method": about["method"],
        "tokens": int(about["tokens"]),
        "steps": int(about["steps"]),
        "minutes": float(about["minutes"]) if "minutes" in about else None,
        "curve": curve,
    }


@dataclass(frozen=True, slots=True)
class Milestones:
    """How far one method came with more and more tokens: the last numbers of each run."""

    method: str
    tokens: list[int]
    tau: list[float]
    tau_error: list[float]
    alpha: list[float]  # of the first drafted token
    alpha_error: list[float]


def milestones(curves: Sequence[Mapping]) -> list[Milestones]:
    """By method, the end of every curve, in rising order of tokens."""
    found = []
    for method in dict.fromkeys(curve["method"] for curve in curves):
        ours = sorted((c for c in curves if c["method"] == method), key=lambda c: c["tokens"])
        ends = [curve["curve"][-1] for curve in ours]
        found.append(
            Milestones(
                method,
                [curve["tokens"] for curve in ours],
                [end["tau"] for end in ends],
                [tau_error(end["alpha"], end["judged"]) for end in ends],
                [end["alpha"][0] for end in ends],
                [_alpha_error(end["alpha"][0], end["judged"][0]) for end in ends],
            )
        )
    return found


def _alpha_error(alpha: float, judged: int) -> float:
    return math.sqrt(alpha * (1 - alpha) / max(judged, 1))


def tau_of(alpha: Sequence[float]) -> float:
    """tau = 1 + sum of the products of alpha, with as many drafted tokens as there are alphas."""
    return 1 + sum(accumulate(alpha, float.__mul__))


def tau_error(alpha: Sequence[float], judged: Sequence[int]) -> float:
    """Standard error of `tau_of`, from the places judged at each depth taken as independent draws;
    neighbours in a text are alike, so it is rather too small.
    """
    products, variance = list(accumulate(alpha, float.__mul__)), 0.0
    for depth, (a, number) in enumerate(zip(alpha, judged, strict=True)):
        if a > 0:
            variance += (sum(products[depth:]) / a * _alpha_error(a, number)) ** 2
    return math.sqrt(variance)


class Outlook(NamedTuple):
    """What a number may be with so many tokens: ``middle``, and the ends of what is plausible."""

    tokens: float
    low: float
    middle: float
    high: float


def outlook(
    tokens: Sequence[float], values: Sequence[float], error: float, at: float
) -> Outlook | None:
    """Where a curve over the logarithm of tokens may be at ``at`` tokens; None for fewer than two
    points.

    The middle goes on from the last point with the mean gain of a doubling. A few points cannot
    tell a line from a curve that is about to flatten, nor measure how it bends: so the low end
    gains nothing more, and the high one goes on with the steepest gain seen between neighbours;
    both are ``error``, the standard error of the last point, times 1.96 further out.
    """
    if len(tokens) < 2:
        return None
    logs = [math.log2(number) for number in tokens]
    pairs = range(len(logs) - 1)
    gains = [(values[i + 1] - values[i]) / (logs[i + 1] - logs[i]) for i in pairs]
    mean_gain = (values[-1] - values[0]) / (logs[-1] - logs[0])
    doublings = math.log2(at) - logs[-1]
    low = values[-1] + min(0.0, mean_gain) * doublings - Z * error
    high = values[-1] + max(0.0, *gains) * doublings + Z * error
    return Outlook(at, low, values[-1] + mean_gain * doublings, high)
