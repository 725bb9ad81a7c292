"""From steps prompt by prompt to tokens per forward, their spread, and what beats copying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specdec_lab.study.measure.progress import table
from specdec_lab.study.measure.summary import ALL, LOOP, WITHOUT_LOOPS, interval

TURKISH = "turkish"
COPYING = ("ngram", "suffix")
SHOWN_K = 4  # of chains, in tables and comparisons
Entries = Sequence[Mapping]


def summarise(methods: Mapping[str, dict]) -> dict[str, dict]:
    """The methods with ``scopes`` at every temperature, and ``against_copying`` at 0.

    A scope is a domain (its English prompts), all of them, those whose text does not loop, or the
    Turkish ones. Ratios are pooled over its prompts; intervals are bootstrapped over them.
    """
    greedy = {label: method["temperatures"].get("0", {}) for label, method in methods.items()}
    done = {}
    for label, method in methods.items():
        temperatures = {
            name: found | ({"scopes": _scopes_of(found)} if "prompts" in found else {})
            for name, found in method["temperatures"].items()
        }
        done[label] = method | {"temperatures": temperatures}
        if "prompts" in greedy[label]:
            done[label]["against_copying"] = against_copying(label, methods, greedy)
    return done


def scopes(entries: Entries) -> dict[str, list[int]]:
    """The numbers of the entries that belong to each scope."""
    english = [i for i, entry in enumerate(entries) if entry["language"] == "en"]
    found = {
        domain: [i for i in english if entries[i]["domain"] == domain]
        for domain in dict.fromkeys(entries[i]["domain"] for i in english)
    }
    found |= {ALL: english}
    found |= {WITHOUT_LOOPS: [i for i in english if entries[i]["rep4"] <= LOOP]}
    found |= {TURKISH: [i for i, entry in enumerate(entries) if entry["language"] == "tr"]}
    return {name: numbers for name, numbers in found.items() if numbers}


def _scopes_of(found: Mapping) -> dict[str, dict]:
    entries = found["prompts"]
    return {
        name: _metrics([entries[i] for i in numbers], found["ks"])
        for name, numbers in scopes(entries).items()
    }


def _metrics(entries: Entries, ks: Sequence[int]) -> dict[str, object]:
    """``tau`` and its interval by k; by position ``alpha`` (conditional), ``marginal`` and
    ``overlap``; the mean ``cap``.
    """
    tokens, steps = _tokens_and_steps(entries)  # (P,), (P, K)
    judged = np.array([entry["judged"] for entry in entries]).sum(0)
    accepted = np.array([entry["accepted"] for entry in entries]).sum(0)
    drafts = judged[0] if len(judged) else 0.0
    return {
        "num_prompts": len(entries),
        "num_tokens": int(tokens.sum()),
        "tau": (tokens.sum() / steps.sum(0)).tolist(),
        "tau_interval": [
            interval(len(entries), lambda pick, i=i: _ratio(tokens, steps[:, i], pick))
            for i in range(len(ks))
        ],
        "alpha": [a / j if j else None for a, j in zip(accepted, judged, strict=True)],
        "marginal": [a / drafts if drafts else None for a in accepted],
        "overlap": _mean_by_position([entry["overlap"] for entry in entries]),
        "cap": _mean([entry["cap"] for entry in entries]),
        "rep4": _mean([entry["rep4"] for entry in entries]),
    }


def _tokens_and_steps(entries: Entries) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([entry["tokens"] for entry in entries], dtype=float)
    return tokens, np.array([entry["steps"] for entry in entries], dtype=float)


def _ratio(tokens: np.ndarray, steps: np.ndarray, pick: np.ndarray) -> np.ndarray:
    """tau of each resample, (resamples,)."""
    return tokens[pick].sum(1) / steps[pick].sum(1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean_by_position(rows: Sequence[Sequence[float | None] | None]) -> list[float | None] | None:
    if rows[0] is None:
        return None
    return [_mean(column) for column in zip(*rows, strict=True)]


def against_copying(
    label: str, methods: Mapping[str, dict], greedy: Mapping[str, dict]
) -> dict[str, dict]:
    """By scope: tau of a method less that of the better copying one, with an interval over the
    same prompts (paired). It ``wins`` where the interval lies above 0.

    A chain of 4 is compared with copied chains of 4, a tree with the longest copied chain. Empty
    for the copying methods themselves.
    """
    rivals = [
        name
        for name, method in methods.items()
        if _method(method) in COPYING and "prompts" in greedy[name]
    ]
    if label in rivals or not rivals:
        return {}
    entries = greedy[label]["prompts"]
    return {
        scope: _better(label, rivals, greedy, numbers) for scope, numbers in scopes(entries).items()
    }


def _better(
    label: str, rivals: Sequence[str], greedy: Mapping[str, dict], numbers: Sequence[int]
) -> dict[str, object]:
    k = _shown(greedy[label]["ks"])
    taus = {name: _tau(greedy[name], numbers, k) for name in rivals}
    rival = max(taus, key=taus.get)
    tokens, ours = _column(greedy[label], numbers, k)
    _, theirs = _column(greedy[rival], numbers, k)

    def difference(pick: np.ndarray) -> np.ndarray:
        return _ratio(tokens, ours, pick) - _ratio(tokens, theirs, pick)

    bounds = interval(len(numbers), difference)
    return {
        "k": k,
        "rival": rival,
        "difference": _tau(greedy[label], numbers, k) - taus[rival],
        "interval": bounds,
        "wins": bounds is not None and bounds[0] > 0,
    }


def _tau(found: Mapping, numbers: Sequence[int], k: int) -> float:
    tokens, steps = _column(found, numbers, k)
    return float(tokens.sum() / steps.sum())


def _column(found: Mapping, numbers: Sequence[int], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and steps (P,) of some prompts, with k drafted tokens or the most there is."""
    tokens, steps = _tokens_and_steps([found["prompts"][i] for i in numbers])
    return tokens, steps[:, found["ks"].index(min(k, max(found["ks"])))]


def _shown(ks: Sequence[int]) -> int:
    """The k that stands for a method: 4 where it has that, else its largest."""
    return SHOWN_K if SHOWN_K in ks else max(ks)


def _method(method: Mapping) -> str:
    config = method["config"]
    return config if isinstance(config, str) else str(config["method"])


# --- for the reader's eye -------------------------------------------------------------------------


def overview(data: Mapping) -> str:
    """Three tables: tau by scope, what beats copying, and sampled drafts; then what is missing."""
    found = {
        label: method
        for label, method in data["methods"].items()
        if "scopes" in method["temperatures"].get("0", {})
    }
    parts = [_taus(found), _wins(found), *_sampled(data)]
    parts += [
        f"{label}: {method['temperatures']['0']['missing']}"
        for label, method in data["methods"].items()
        if "missing" in method["temperatures"].get("0", {})
    ]
    return "\n\n".join(part for part in parts if part)


def _taus(found: Mapping[str, dict]) -> str:
    names = _scope_names(found)
    rows = []
    for label, method in found.items():
        greedy = method["temperatures"]["0"]
        k = _shown(greedy["ks"])
        place = greedy["ks"].index(k)
        taus = [greedy["scopes"][name]["tau"][place] for name in names]
        alpha = " ".join("-" if a is None else f"{a:.2f}" for a in greedy["scopes"][ALL]["alpha"])
        rows.append([label, k, *taus, alpha, greedy["scopes"][ALL]["cap"]])
    return table(["greedy tau", "k", *names, "alpha by position", "cap"], rows)


def _wins(found: Mapping[str, dict]) -> str:
    """The differences to the better copying method, with a star where the interval excludes 0."""
    names = _scope_names(found)
    rows = [
        [label, *(_difference(method["against_copying"][name]) for name in names)]
        for label, method in found.items()
        if method.get("against_copying")
    ]
    return table(["less copying", *names], rows) if rows else ""


def _difference(found: Mapping) -> str:
    return f"{found['difference']:+.2f}{'*' if found['wins'] else ''}"


def _sampled(data: Mapping) -> list[str]:
    """The overlap of first tokens and tau by temperature, where laws were told."""
    temperatures = [f"{t:g}" for t in data["temperatures"] if t]
    rows = []
    for label, method in data["methods"].items():
        scopes = [method["temperatures"][t].get("scopes") for t in temperatures]
        if scopes and all(scopes):
            ks = method["temperatures"][temperatures[0]]["ks"]
            place = ks.index(_shown(ks))
            shares = [scope[ALL]["overlap"] and scope[ALL]["overlap"][0] for scope in scopes]
            rows.append([label, *shares, *(scope[ALL]["tau"][place] for scope in scopes)])
    words = ("overlap", "tau")
    head = [f"{word}, T = {t}" for word in words for t in temperatures]
    return [table(["sampled", *head], rows)] if rows else []


def _scope_names(found: Mapping[str, dict]) -> list[str]:
    if not found:
        return []
    return list(next(iter(found.values()))["temperatures"]["0"]["scopes"])
