"""The mix: which prompts the corpus is made of, at which temperatures, and what it must not hold.

The stream of prompts is endless and fixed by its seed. A prompt that shares eight words in a row
with an evaluation prompt never enters it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from specdec_lab.prompts import domains, load_prompts
from specdec_lab.training import own_code, own_passages, own_prompts, text_prompts
from specdec_lab.training.recipes import Recipe, Texts

TEMPERATURES: Mapping[float, float] = {0.0: 0.15, 0.7: 0.4, 1.0: 0.45}  # and their shares
OWN = (  # who makes a prompt from words of ours, and how many of a hundred
    (own_prompts.chat, 10),
    (own_prompts.creative, 10),
    (own_code.code, 13),
    (own_code.code_edit, 6),
    (own_prompts.records, 10),
    (own_passages.quotation, 4),
    (own_passages.summary, 2),
    (own_prompts.maths, 6),
    (own_prompts.chat_turkish, 0.5),
    (own_prompts.records_turkish, 2),
    (own_code.code_turkish, 1),
)
FETCHED = (  # the same from fetched texts
    (text_prompts.title_question, 9),
    (text_prompts.question, 5),
    (text_prompts.function_body, 5),
    (text_prompts.about_function, 3),
    (text_prompts.function_edit, 4),
    (text_prompts.wiki_quotation, 2),
    (text_prompts.wiki_summary, 5),
    (text_prompts.question_turkish, 0.5),
    (text_prompts.speech_quotation, 1.5),
    (text_prompts.speech_summary, 0.5),
)
SHARED_WORDS = 8  # so many in a row are too many
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt to answer at a temperature; ``seed`` fixes the chance of its answer."""

    recipe: Recipe
    temperature: float
    seed: int


class Guard:
    """Knows the evaluation prompts and refuses what shares words with them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.known = {gram for text in texts for gram in _grams(text)}

    def admits(self, *texts: str) -> bool:
        """Whether no run of ``SHARED_WORDS`` words is an evaluation prompt's too."""
        return not any(gram in self.known for text in texts for gram in _grams(text))


def evaluation_guard() -> Guard:
    """The guard of all prompts with the split "eval"."""
    prompts = [p for domain in domains() for p in load_prompts(domain, split="eval")]
    return Guard(text for p in prompts for text in (p.text, p.prefix))


def _grams(text: str) -> Iterator[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return (tuple(words[i : i + SHARED_WORDS]) for i in range(len(words) - SHARED_WORDS + 1))


def tasks(seed: int, texts: Texts) -> Iterator[Task]:
    """Prompts without end, none twice, in an order that the seed fixes.

    ``texts`` reads the documents of a source. Sources are fetched when they are first needed.
    """
    guard, seen = evaluation_guard(), set()
    makers = [make for make, _ in OWN] + [partial(make, texts=texts) for make, _ in FETCHED]
    weights = [weight for _, weight in OWN + FETCHED]
    for number in count():
        rng = Random(f"corpus/{seed}/{number}")
        recipe = rng.choices(makers, weights)[0](rng)
        temperature = rng.choices(list(TEMPERATURES), list(TEMPERATURES.values()))[0]
        if recipe.key not in seen and guard.admits(*recipe.render(texts)):
            seen.add(recipe.key)
            yield Task(recipe, temperature, rng.getrandbits(62))
