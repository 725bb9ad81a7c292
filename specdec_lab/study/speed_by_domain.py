"""The speed-ups of a few ways to draft by kind of text, measured here and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from specdec_lab.prompts import load_prompts
from specdec_lab.study.speedup import PLAIN, Speed, Speeds, Way, measure_speedup

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target


def speed_by_domain(
    target: Target, domains: Sequence[str], ways: Mapping[str, Way], **how: object
) -> dict[str, Speeds]:
    """`measure_speedup` with the first English prompt of every domain, greedy; ``how`` goes there.

    All ways warm up on the first domain and are warm on the others. Raises RuntimeError where a way
    writes another text than plain decoding.
    """
    found = {}
    for domain in domains:
        prompts = [load_prompts(domain, "en")[0].ids(target)]
        speeds = measure_speedup(target, prompts, ways, **how, **({"warm_up": 0} if found else {}))
        for label in speeds:
            if speeds[label].tokens != speeds[PLAIN].tokens:
                raise RuntimeError(f"{label} on {domain} writes another text than plain decoding")
        found[domain] = speeds
    return found


def as_picture(found: Mapping[str, Speeds]) -> dict[str, object]:
    """What `speed_bars` draws: by domain and way tau, and every number with its spread."""
    one = next(iter(found.values()))
    domains = [
        {"domain": domain, "ways": {way: _entry(speeds[way]) for way in speeds if way != PLAIN}}
        for domain, speeds in found.items()
    ]
    return {"tokens": one.max_new_tokens, "rounds": one.rounds, "domains": domains}


def _entry(speed: Speed) -> dict[str, object]:
    spreads = {name: asdict(getattr(speed, name)) for name in ("speedup", "steps", "price")}
    return {"tau": speed.tau, "refused": speed.refused} | spreads
