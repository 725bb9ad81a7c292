"""Made-up data of a figure of speed-ups."""


def made_speeds(*ways: str, domains: tuple[str, ...] = ("chat",), **facts: object) -> dict:
    """Data of a figure of speed-ups: the first way brings 1.5 with the prompt and 2 without, each
    further one 0.1 less.
    """
    entries = {}
    for number, way in enumerate(ways):
        steps, speedup = 2 - 0.1 * number, 1.5 - 0.1 * number
        entries[way] = {"tau": steps + 0.5, "refused": False, "price": _spread(1.2)}
        entries[way] |= {"speedup": _spread(speedup), "steps": _spread(steps)}
    found = [{"domain": domain, "ways": entries} for domain in domains]
    return {"tokens": 24, "rounds": 3, "domains": found, **facts}


def _spread(median: float) -> dict[str, float]:
    return {"median": median, "low": median - 0.1, "high": median + 0.2}
