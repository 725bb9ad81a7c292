"""The corpus as drafts read it: prompts built again, answers of the target, and human text.

What is committed in ``data/corpus`` are files of answers (``shards.py``), each adding to the ones
before it: prompts as recipes, fetched text by place only. Reading fetches the sources once, builds
every prompt again and checks that its ids are the ones that were answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.target import Target
from specdec_lab.training.recipes import SPLITS, Passage, Recipe, Texts, split_of
from specdec_lab.training.shards import Entry, ids_crc, read_folder
from specdec_lab.training.sources import documents

FOLDER = Path(__file__).resolve().parents[2] / "data" / "corpus"
LABELLED = {  # sources of human text, and their shares
    "wiki": 0.45,
    "networkx": 0.25,
    "boltons": 0.1,
    "more_itertools": 0.1,
    "speeches": 0.1,
}
LABELLED_CHARACTERS = 900  # of a document that make one text
LABELLED_TOKENS = 256  # that are kept of it


@dataclass(frozen=True, slots=True)
class CorpusText:
    """A prompt and what follows it, in token ids.

    ``temperature`` is the one at which the target wrote the answer, None for human text: there the
    prompt is empty.
    """

    prompt: list[int]
    answer: list[int]
    domain: str
    language: str
    temperature: float | None


def load_corpus(
    split: str = "train",
    target: Target | None = None,
    folder: Path = FOLDER,
    texts: Texts = documents,
    num_tokens: int | None = None,
    wanted: Callable[[Recipe], bool] | None = None,
) -> list[CorpusText]:
    """The target's own answers of a split, in the order of the files; about ``num_tokens`` of
    answers if given, and only of prompts that are ``wanted``.

    Raises ``OSError`` when there is no corpus or a source of its prompts can't be fetched, and
    ``ValueError`` when a prompt built again is not the one that was answered.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; use {' or '.join(SPLITS)}")
    entries = [e for shard in read_folder(folder) for e in shard.entries if not e.is_loop]
    if not entries:
        raise OSError(f"There is no corpus in {folder}: make one with train corpus --export.")
    target = target or load_target()
    chosen = (e for e in entries if e.recipe.split == split and (not wanted or wanted(e.recipe)))
    return list(_up_to(num_tokens, (_rebuilt(entry, target, texts) for entry in chosen)))


def _rebuilt(entry: Entry, target: Target, texts: Texts) -> CorpusText:
    recipe = entry.recipe
    message, prefix = recipe.render(texts)
    prompt = target.encode_chat(message, prefix=prefix)
    if ids_crc(prompt) != entry.prompt_crc:
        raise ValueError(
            f"The prompt made from {recipe.document!r} is not the one that was answered: the "
            "tokenizer, its chat template or a source differs; use those of the corpus."
        )
    return CorpusText(prompt, entry.tokens, recipe.domain, recipe.language, entry.temperature)


def load_labelled(
    num_tokens: int,
    split: str = "train",
    target: Target | None = None,
    texts: Texts = documents,
    seed: int = 0,
) -> list[CorpusText]:
    """About ``num_tokens`` of human text, for the target to label in one forward pass each.

    Nothing of it is stored: sources (by hash), ``seed`` and split name the very same pieces
    everywhere. Documents of the other split are never touched.
    """
    target = target or load_target()
    pieces = labelled_passages(split, texts, seed)
    return list(_up_to(num_tokens, (_labelled(piece, target, texts) for piece in pieces)))


def labelled_passages(split: str, texts: Texts, seed: int = 0) -> Iterator[Passage]:
    """Pieces of human text without end, by place."""
    names = {
        source: [name for name in sorted(texts(source)) if split_of(f"{source}/{name}") == split]
        for source in LABELLED
    }
    rng = Random(f"labelled/{split}/{seed}")
    while True:
        source = rng.choices(list(LABELLED), list(LABELLED.values()))[0]
        if names[source]:
            yield _piece(rng, source, rng.choice(names[source]), texts)


def _piece(rng: Random, source: str, name: str, texts: Texts) -> Passage:
    """A piece that starts at a line or a word, at a random place of the document."""
    text = texts(source)[name]
    after = rng.randrange(max(len(text) - LABELLED_CHARACTERS, 1))
    between = "\n" if "\n" in text else " "
    start = text.rfind(between, 0, after) + 1
    return Passage(source, name, start, min(LABELLED_CHARACTERS, len(text) - start))


def _labelled(piece: Passage, target: Target, texts: Texts) -> CorpusText:
    ids = target.encode(piece.read(texts))[:LABELLED_TOKENS]
    language = "tr" if piece.source == "speeches" else "en"
    return CorpusText([], ids, f"human {piece.source}", language, None)


def _up_to(num_tokens: int | None, found: Iterator[CorpusText]) -> Iterator[CorpusText]:
    """Texts until their answers hold so many tokens; all of them for None."""
    have = 0
    for text in found:
        have += len(text.answer)
        yield text
        if num_tokens is not None and have >= num_tokens:
            return
