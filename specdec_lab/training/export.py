"""From working shards to the committed corpus, and the numbers that stand beside it.

A milestone adds one file with what earlier ones do not hold. Loops stay behind, and are counted;
their keys are written down, so that nobody answers those prompts again.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from specdec_lab.training.corpus import FOLDER, LABELLED
from specdec_lab.training.mix import TEMPERATURES
from specdec_lab.training.shards import Entry, Shard, num_tokens, read_folder, write_shard
from specdec_lab.training.sources import SOURCES

BUDGET = 4_000_000  # bytes that the committed ids may take


def export(working: Path, milestone: int, folder: Path = FOLDER) -> Path:
    """Write the file that brings the committed corpus to ``milestone`` tokens, and its statistics.

    Raises ``ValueError`` when the working shards hold too little, or the milestone is reached.
    """
    committed = [entry for shard in read_folder(folder) for entry in shard.entries]
    shards = read_folder(working)
    missing = milestone - num_tokens(committed)
    if missing <= 0:
        raise ValueError(f"{folder} holds {num_tokens(committed):,} tokens already.")
    added = _next_entries(shards, committed, missing)
    path = folder / f"{milestone:07d}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    loops = [e.recipe.key for shard in shards for e in shard.entries if e.is_loop]
    write_shard(path, Shard(added, shards[0].about | {"milestone": milestone, "loops": loops}))
    _check_budget(folder)
    said = statistics(shards, committed + added)
    path.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return path


def _next_entries(shards: Sequence[Shard], committed: list[Entry], missing: int) -> list[Entry]:
    """Usable entries that are not committed yet, in the order of their making."""
    known = {entry.recipe.key for entry in committed}
    added: list[Entry] = []
    for entry in (entry for shard in shards for entry in shard.entries):
        if not entry.is_loop and entry.recipe.key not in known:
            added.append(entry)
            missing -= len(entry.tokens)
            if missing <= 0:
                return added
    raise ValueError(f"The shards lack {missing:,} tokens: generate more first (train corpus).")


def _check_budget(folder: Path) -> None:
    used = sum(path.stat().st_size for path in folder.glob("*.npz"))
    if used > BUDGET:
        raise ValueError(f"{folder} holds {used:,} bytes, above its budget of {BUDGET:,}.")


def statistics(shards: Sequence[Shard], kept: Sequence[Entry]) -> dict:
    """What is in the corpus, how it was made, how fast, and what was left out."""
    made = [entry for shard in shards for entry in shard.entries]
    seconds, cpu = (sum(s.about[key] for s in shards) for key in ("seconds", "cpu_seconds"))
    return {
        "tokens": num_tokens(kept),
        "answers": len(kept),
        "prompt_tokens": sum(entry.prompt_length for entry in kept),
        "tokens_by_domain": _by(kept, lambda e: e.recipe.domain),
        "tokens_by_language": _by(kept, lambda e: e.recipe.language),
        "tokens_by_temperature": _by(kept, lambda e: str(e.temperature)),
        "tokens_by_split": _by(kept, lambda e: e.recipe.split),
        "answers_by_finish": dict(Counter(entry.finish for entry in kept)),
        "share_of_loops_by_temperature": _loop_share(made, lambda e: str(e.temperature)),
        "share_of_loops_by_domain": _loop_share(made, lambda e: e.recipe.domain),
        "planned_temperatures": {str(t): share for t, share in TEMPERATURES.items()},
        "labelled_text": {"stored": 0, "shares": LABELLED, "read_by": "load_labelled"},
        "sources": {n: vars(s) | {"read": s.read.__name__} for n, s in SOURCES.items()},
        "made": {
            "tokens": num_tokens(made),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu, 1),
            "tokens_per_second": round(num_tokens(made) / max(seconds, 1e-9), 1),
            "tokens_per_cpu_second": round(num_tokens(made) / max(cpu, 1e-9), 1),
            "note": "wall clock of a shared machine, stops included: trust CPU seconds",
            "dates": sorted({shard.about.get("date", "")[:10] for shard in shards}),
        },
        "how": {key: shards[0].about.get(key) for key in ("target", "products", "rows", "seed")},
        "machine": {
            "processor": platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
        },
        "torch": torch.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m specdec_lab", *sys.argv[1:]]),
    }


def _by(entries: Iterable[Entry], what: Callable[[Entry], str]) -> dict[str, int]:
    tokens = Counter()
    for entry in entries:
        tokens[what(entry)] += len(entry.tokens)
    return dict(sorted(tokens.items()))


def _loop_share(entries: Iterable[Entry], what: Callable[[Entry], str]) -> dict[str, float]:
    """Share of answers that are loops."""
    all_of, loops = Counter(), Counter()
    for entry in entries:
        all_of[what(entry)] += 1
        loops[what(entry)] += entry.is_loop
    return {key: round(loops[key] / all_of[key], 3) for key in sorted(all_of)}
