"""Making the corpus: the target answers prompt after prompt until there is enough, and whatever
happens to the process costs at most the last minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from specdec_lab.decoding.store import Report, cache_folder, to_stderr
from specdec_lab.decoding.target import Target
from specdec_lab.training.corpus import FOLDER
from specdec_lab.training.half_products import half_copy, half_is_faster, half_works
from specdec_lab.training.mix import tasks
from specdec_lab.training.plain_batch import Answer, Job, answer_all
from specdec_lab.training.recipes import Texts
from specdec_lab.training.shards import (
    Entry,
    Shard,
    ids_crc,
    num_tokens,
    read_folder,
    write_shard,
)
from specdec_lab.training.sources import documents
from specdec_lab.training.states import TargetStates

LONGEST_PROMPT = 300  # tokens; longer prompts are left out


@dataclass(frozen=True, slots=True)
class Plan:
    """How to generate: ``seconds`` is the longest time between two shards."""

    num_tokens: int
    seed: int = 0
    num_rows: int = 64
    max_new_tokens: int = 192
    products: str = "auto"  # float32, bfloat16 or whichever is faster here
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.products not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"products must be auto, float32 or bfloat16, not {self.products!r}.")
        if min(self.num_tokens, self.num_rows, self.max_new_tokens) < 1:
            raise ValueError("num_tokens, num_rows and max_new_tokens must be 1 or more.")


def working_folder(seed: int) -> Path:
    """Where the shards of a seed lie: in the user's cache."""
    return cache_folder() / "corpus" / f"seed-{seed}"


def make_corpus(
    target: Target,
    plan: Plan,
    folder: Path | None = None,
    committed: Path = FOLDER,
    texts: Texts = documents,
    report: Report = to_stderr,
    states: TargetStates | None = None,
) -> Path:
    """Generate until the corpus and the shards of ``folder`` hold ``plan.num_tokens`` usable tokens
    together; returns the folder.

    What is in either of them counts and is not done again. ``states`` keeps what the target saw
    as it wrote (`states.py`): it costs little now, and a forward pass a text later. Raises
    ``OSError`` when another process works on the same folder.
    """
    folder = folder or working_folder(plan.seed)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            _go_on(target, plan, folder, committed, texts, report, states)
    except Timeout as error:
        raise OSError(f"Another process is generating into {folder}: wait for it.") from error
    return folder


def _go_on(
    target: Target,
    plan: Plan,
    folder: Path,
    committed: Path,
    texts: Texts,
    report: Report,
    states: TargetStates | None,
) -> None:
    done, have = _done([*read_folder(committed), *read_folder(folder)])
    if have >= plan.num_tokens:
        return report(f"{have:,} tokens are there already.")
    products = _products(plan)
    writer = half_copy(target) if products == "bfloat16" else target
    jobs, watched = _jobs(target, plan, done, texts), states and states.computed
    answers = answer_all(writer, jobs, plan.num_rows, plan.max_new_tokens, watched)
    answers = _keeping(answers, states) if states else answers
    about = {"target": target.name, "products": products, "rows": plan.num_rows, "seed": plan.seed}
    for shard in _in_time(answers, about, plan.seconds):
        have += num_tokens(entry for entry in shard.entries if not entry.is_loop)
        write_shard(folder / f"{_next_number(folder):05d}.npz", shard)
        report(_progress(shard, have, plan))
        if have >= plan.num_tokens:
            return None
    return None


def _done(shards: list[Shard]) -> tuple[set[str], int]:
    """The keys of all prompts that were answered, and how many usable tokens there are."""
    answered = {entry.recipe.key: entry for shard in shards for entry in shard.entries}
    left_out = {key for shard in shards for key in shard.about.get("loops", [])}
    return answered.keys() | left_out, num_tokens(e for e in answered.values() if not e.is_loop)


def _products(plan: Plan) -> str:
    """What the text is written with: bfloat16 only where there are such products."""
    wanted = plan.products == "bfloat16" or (plan.products == "auto" and half_is_faster())
    return "bfloat16" if wanted and half_works() else "float32"


def _jobs(target: Target, plan: Plan, done: set[str], texts: Texts) -> Iterator[Job]:
    """The prompts that are not answered yet and are short enough."""
    for task in tasks(plan.seed, texts):
        if task.recipe.key not in done:
            message, prefix = task.recipe.render(texts)
            ids = target.encode_chat(message, prefix=prefix)
            if len(ids) <= LONGEST_PROMPT:
                yield Job(ids, task.temperature, task.seed, task.recipe)


def _keeping(answers: Iterator[Answer], states: TargetStates) -> Iterator[Answer]:
    """The same answers; what was seen on the way to each is with ``states``, and dropped here."""
    for answer in answers:
        prompt = answer.job.prompt
        text = [*prompt, *answer.tokens]
        states.keep(text, len(prompt) - 1, answer.seen.hidden, answer.seen.laws)
        yield replace(answer, seen=None)


def _in_time(answers: Iterator[Answer], about: dict, seconds: float) -> Iterator[Shard]:
    """Shards of what comes, one whenever ``seconds`` have passed."""
    entries: list[Entry] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for answer in answers:
        entries.append(_entry(answer))
        if time.perf_counter() - wall >= seconds:
            yield Shard(entries, about | _spent(wall, cpu))
            entries, wall, cpu = [], time.perf_counter(), time.process_time()
    if entries:
        yield Shard(entries, about | _spent(wall, cpu))


def _spent(wall: float, cpu: float) -> dict:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def _entry(answer: Answer) -> Entry:
    return Entry(
        recipe=answer.job.tag,
        temperature=answer.job.temperature,
        prompt_length=len(answer.job.prompt),
        prompt_crc=ids_crc(answer.job.prompt),
        finish=answer.finish,
        tokens=answer.tokens,
    )


def _next_number(folder: Path) -> int:
    return max((int(path.stem) for path in folder.glob("*.npz")), default=-1) + 1


def _progress(shard: Shard, have: int, plan: Plan) -> str:
    made = num_tokens(shard.entries)
    return (
        f"{have:,} of {plan.num_tokens:,} usable tokens; {made / shard.about['seconds']:.0f} "
        f"tokens/s, {made / max(shard.about['cpu_seconds'], 1e-9):.0f} a CPU second"
    )
