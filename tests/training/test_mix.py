"""The stream of prompts: fixed by its seed, of every domain, and nothing of what is measured."""

import json
from collections import Counter
from itertools import islice

import pytest

from specdec_lab.prompts import domains, load_prompts
from specdec_lab.training.mix import TEMPERATURES, WORD, Guard, evaluation_guard, tasks
from specdec_lab.training.recipes import Passage

SECRET = "zyx"  # marks fetched text
CODE = f'''def scale(values, factor):
    """Multiply every {SECRET} value."""
    result = [value * factor for value in values]
    return result
'''
SOURCES = {
    "wiki": {f"Town {i}": f"The {SECRET} town lies {i} miles away. It is old." for i in range(80)},
    "questions": {
        f"{folder}/food/{i}": f"{SECRET} {i}?"
        for folder in ("english", "turkish")
        for i in range(9)
    },
    "speeches": {f"s{i}": f"Bu {SECRET} sözdür. Şu {i} sözdür. O da." for i in range(30)},
    "boltons": {f"b{i}.py": CODE.replace("scale", f"scale{i}") for i in range(40)},
    "more_itertools": {},
    "networkx": {"empty.py": "x = 1\n"},
}


def texts(source):
    """Fetched documents that nobody fetched."""
    return SOURCES[source]


@pytest.fixture(scope="module")
def stream():
    return list(islice(tasks(0, texts), 1200))


def runs(text, length):
    """All runs of so many words."""
    words = WORD.findall(text.lower())
    return {" ".join(words[i : i + length]) for i in range(len(words) - length + 1)}


def test_a_seed_fixes_the_stream(stream):
    assert list(islice(tasks(0, texts), 300)) == stream[:300]
    assert list(islice(tasks(1, texts), 300)) != stream[:300]


def test_no_prompt_comes_twice(stream):
    assert len({task.recipe.key for task in stream}) == len(stream)
    assert len({task.seed for task in stream}) == len(stream)


def test_every_domain_but_the_control_is_there(stream):
    found = {task.recipe.domain for task in stream}
    assert found == set(domains()) - {"copy"}
    languages = Counter(task.recipe.language for task in stream)
    assert 0 < languages["tr"] < 0.1 * len(stream)


def test_temperatures_have_their_shares(stream):
    counts = Counter(task.temperature for task in stream)
    for temperature, share in TEMPERATURES.items():
        assert counts[temperature] / len(stream) == pytest.approx(share, abs=0.05)


def test_no_document_is_in_both_splits(stream):
    documents = {"train": set(), "heldout": set()}
    for task in stream:
        documents[task.recipe.split].add(task.recipe.document)
    assert documents["heldout"]
    assert not documents["train"] & documents["heldout"]


def test_fetched_text_is_named_by_place_only(stream):
    rendered = [" ".join(task.recipe.render(texts)) for task in stream]
    assert any(SECRET in text for text in rendered)
    assert SECRET not in json.dumps([task.recipe.to_json() for task in stream])


def test_nothing_of_an_evaluation_prompt_is_in_the_stream(stream):
    measured = [p for domain in domains() for p in load_prompts(domain, split="eval")]
    known = set().union(*(runs(text, 8) for p in measured for text in (p.text, p.prefix)))
    asked = {p.text for p in measured}
    for task in stream:
        message, prefix = task.recipe.render(texts)
        assert message not in asked
        assert not (runs(message, 8) | runs(prefix, 8)) & known


def test_the_guard_refuses_an_evaluation_prompt_wherever_it_stands():
    (prompt, *_) = load_prompts("quotation")
    guard = evaluation_guard()
    assert not guard.admits(prompt.text)
    assert not guard.admits("hello", "Now: " + prompt.text.upper() + " Really.")
    assert guard.admits("hello", "what a nice day it is to walk along the sea")


def test_the_guard_sees_runs_of_eight_words():
    guard = Guard(["one two three four five six seven eight nine"])
    assert not guard.admits("zero two three four, five six seven eight nine!")
    assert guard.admits("one two three four five six seven")


def test_a_prompt_that_shares_words_with_an_evaluation_prompt_is_left_out():
    shared = load_prompts("chat")[0].text
    asked = {f"{folder}/food/{i}": shared for folder in ("english", "turkish") for i in range(2)}
    sources = SOURCES | {"questions": asked | {"english/food/2": "How are you?"}}
    found = [task.recipe.message for task in islice(tasks(0, sources.get), 200)]
    assert (Passage("questions", "english/food/2", 0, 12),) in found
    assert not any(p.length == len(shared) for m in found for p in m if isinstance(p, Passage))
