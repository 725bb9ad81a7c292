"""Prompts made from fetched texts, which they name by place and never copy."""

from __future__ import annotations

import ast
from functools import lru_cache
from random import Random

from specdec_lab.training.recipes import Passage, Recipe, Texts
from specdec_lab.training.sources import CODE, sentences

MOST_CHARACTERS = 700  # of a passage, so that a prompt stays below 300 tokens
ASK_TITLE = (
    ("Who or what is ", "?"),
    ("Tell me something about ", "."),
    ("Why is ", " important?"),
    ("What should a visitor know about ", "?"),
    ("Write a short encyclopedia entry on ", "."),
    ("Give three facts about ", "."),
)
ASK_SUMMARY = (
    ("Sum this up in a single sentence:\n\n", ""),
    ("", "\n\nSay the same in fewer words."),
    ("Explain to a pupil what this text is about:\n\n", ""),
    ("List the key facts of this paragraph.\n\n", ""),
)
ASK_QUOTE = (
    ("Here is a text:\n\n", "\n\nCopy its most important sentence exactly."),
    ("", "\n\nWhich sentence of this text matters most? Repeat it exactly."),
)
ASK_SUMMARY_TURKISH = (
    ("Şu metni bir cümleyle özetle:\n\n", ""),
    ("", "\n\nBu metnin ana fikri nedir?"),
)
ASK_QUOTE_TURKISH = (
    ("Metin:\n", "\n\nBu metinden bir cümleyi olduğu gibi yaz."),
    ("", "\n\nYukarıdaki metnin bir cümlesini değiştirmeden tekrarla."),
)
ASK_BODY = (
    ("Complete this Python function:\n\n```python\n", "\n```"),
    ("Write the body of this function.\n\n```python\n", "\n```"),
)
ASK_ABOUT_CODE = (
    ("What does this code do?\n\n```python\n", "\n```"),
    ("Review this function and suggest improvements:\n\n```python\n", "\n```"),
    ("Write a test for this function:\n\n```python\n", "\n```"),
)
ASK_EDIT = (
    ("Add type hints to this function and print it in full:\n\n```python\n", "\n```"),
    ("Print this function again without its comments:\n\n```python\n", "\n```"),
    ("Write out this function with better variable names:\n\n```python\n", "\n```"),
)


@lru_cache(maxsize=8)
def _names(texts: Texts, source: str, start: str = "") -> tuple[str, ...]:
    return tuple(sorted(name for name in texts(source) if name.startswith(start)))


def _document(rng: Random, texts: Texts, source: str) -> tuple[str, str]:
    name = rng.choice(_names(texts, source))
    return name, texts(source)[name]


def title_question(rng: Random, texts: Texts) -> Recipe:
    """A question about the subject of an encyclopedia article."""
    title, text = _document(rng, texts, "wiki")
    before, after = rng.choice(ASK_TITLE)
    start = text.find(title)  # most articles begin with their title
    subject = Passage("wiki", title, start, len(title)) if start >= 0 else title
    return Recipe("chat", "en", f"wiki/{title}", (before, subject, after))


def question(rng: Random, texts: Texts) -> Recipe:
    """What somebody said to open a conversation."""
    return _question(rng, texts, "english", "en")


def question_turkish(rng: Random, texts: Texts) -> Recipe:
    """The same in Turkish."""
    return _question(rng, texts, "turkish", "tr")


def _question(rng: Random, texts: Texts, folder: str, language: str) -> Recipe:
    name = rng.choice(_names(texts, "questions", folder))
    said = Passage("questions", name, 0, len(texts("questions")[name]))
    return Recipe("chat", language, f"questions/{name}", (said,))


def wiki_summary(rng: Random, texts: Texts) -> Recipe:
    """A paragraph to put in few words."""
    title, text = _document(rng, texts, "wiki")
    before, after = rng.choice(ASK_SUMMARY)
    passage = Passage("wiki", title, *_first_sentences(text))
    return Recipe("summary", "en", f"wiki/{title}", (before, passage, after))


def wiki_quotation(rng: Random, texts: Texts) -> Recipe:
    """A paragraph and one sentence of it to repeat; its first words are in the mouth."""
    title, text = _document(rng, texts, "wiki")
    return _quotation(rng, texts, "wiki", title, _first_sentences(text), ASK_QUOTE, "en")


def speech_quotation(rng: Random, texts: Texts) -> Recipe:
    """The same of a Turkish speech."""
    name, text = _document(rng, texts, "speeches")
    where = _some_sentences(rng, text)
    return _quotation(rng, texts, "speeches", name, where, ASK_QUOTE_TURKISH, "tr")


def speech_summary(rng: Random, texts: Texts) -> Recipe:
    """A piece of a Turkish speech to put in few words."""
    name, text = _document(rng, texts, "speeches")
    before, after = rng.choice(ASK_SUMMARY_TURKISH)
    passage = Passage("speeches", name, *_some_sentences(rng, text))
    return Recipe("summary", "tr", f"speeches/{name}", (before, passage, after))


def _quotation(
    rng: Random,
    texts: Texts,
    source: str,
    name: str,
    where: tuple[int, int],
    asks: tuple[tuple[str, str], ...],
    language: str,
) -> Recipe:
    start, length = where
    text = texts(source)[name]
    found = list(sentences(text[start : start + length])) or [(0, length)]
    at, size = rng.choice(found)
    words = text[start + at : start + at + size].split(" ")[:3]
    mouth = Passage(source, name, start + at, len(" ".join(words)))
    before, after = rng.choice(asks)
    message = (before, Passage(source, name, start, length), after)
    return Recipe("quotation", language, f"{source}/{name}", message, ("“", mouth))


def _first_sentences(text: str) -> tuple[int, int]:
    """Start and length of as many whole sentences from the beginning as fit."""
    ends = [start + size for start, size in sentences(text) if start + size <= MOST_CHARACTERS]
    return 0, ends[-1] if ends else min(len(text), MOST_CHARACTERS)


def _some_sentences(rng: Random, text: str, most: int = 320) -> tuple[int, int]:
    """A few neighbouring sentences; Turkish takes three times the tokens, so they are few."""
    found = list(sentences(text)) or [(0, min(len(text), most))]
    start, size = rng.choice(found)
    end = start + min(size, most)
    for at, length in found:
        if at > start and at + length <= start + most:
            end = max(end, at + length)
    return start, end - start


# --- Code -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _functions(texts: Texts) -> tuple[tuple[str, str, int, int, int], ...]:
    """Source, module, start, end of the docstring and end of every function of a fair size."""
    return tuple(
        (source, name, *place)
        for source in CODE
        for name, text in sorted(texts(source).items())
        for place in _places(text)
    )


def _places(text: str) -> list[tuple[int, int, int]]:
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    places = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            start, end = lines[node.lineno - 1], lines[node.end_lineno] - 1
            head = lines[node.body[0].end_lineno] - 1
            if end - start <= MOST_CHARACTERS and head < end:
                places.append((start, head, end))
    return places


def function_body(rng: Random, texts: Texts) -> Recipe:
    """Signature and docstring; the body is to be written, and the answer begins with the name."""
    source, name, start, head, _ = rng.choice(_functions(texts))
    before, after = rng.choice(ASK_BODY)
    shown = Passage(source, name, start, head - start)
    signature = texts(source)[name][start:head].split("(")[0]
    mouth = ("```python\n", Passage(source, name, start, len(signature) + 1))
    return Recipe("code", "en", f"{source}/{name}", (before, shown, after), mouth)


def about_function(rng: Random, texts: Texts) -> Recipe:
    """A question about a whole function."""
    source, name, start, _, end = rng.choice(_functions(texts))
    before, after = rng.choice(ASK_ABOUT_CODE)
    shown = Passage(source, name, start, end - start)
    return Recipe("code", "en", f"{source}/{name}", (before, shown, after))


def function_edit(rng: Random, texts: Texts) -> Recipe:
    """A whole function to write out again, changed a little."""
    source, name, start, _, end = rng.choice(_functions(texts))
    before, after = rng.choice(ASK_EDIT)
    shown = Passage(source, name, start, end - start)
    signature = texts(source)[name][start:end].split("(")[0]
    mouth = ("```python\n", Passage(source, name, start, len(signature) + 1))
    return Recipe("code_edit", "en", f"{source}/{name}", (before, shown, after), mouth)
