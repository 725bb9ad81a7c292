"""Acceptance on many prompts: the steps of decoding for every k, their spread, and what wins.

pytest tests/study/test_measure_acceptance.py
"""

import json

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.prompts import Prompt
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study.measure import acceptance
from specdec_lab.study.measure.acceptance_summary import against_copying, overview, summarise
from specdec_lab.study.measure.known_texts import known_texts
from toys import random_target

IDS = {"one": [1, 2, 3, 1, 2], "two": [4, 5, 4], "three": [6]}
METHODS = {
    "ngram": {"config": "ngram", "ks": [4]},
    "trees": {"config": {"method": "draft_tree", "model": "int8", "width": 2}, "ks": [3, 5]},
    "draft_model int8": {"config": {"method": "draft_model", "model": "int8"}, "ks": [2]},
    "pard": {"config": "pard", "ks": [4]},
}
SETTINGS = {
    "methods": METHODS,
    "temperatures": [0.0, 1.0],
    "domains": ["chat"],
    "turkish": ["chat"],
    "prompts": 2,
    "sampled_prompts": 1,
    "max_new_tokens": 12,
    "k": 3,
    "seed": 0,
}


@pytest.fixture(scope="module")
def target():
    return random_target(seed=3, vocab_size=8, dtype=torch.float32, max_context=128)


@pytest.fixture(scope="module", autouse=True)
def few_prompts(tmp_path_factory):
    """Two English prompts and a Turkish one, and a folder of the tests' own."""
    prompts = {
        "en": [Prompt("one", "chat", "en", ""), Prompt("two", "chat", "en", "")],
        "tr": [Prompt("three", "chat", "tr", "")],
    }
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEC_LAB_OUTPUT", str(folder))
        patch.setattr("specdec_lab.proposers.weights.FOLDER", folder)
        patch.setattr(acceptance, "load_prompts", lambda domain, language: prompts[language])
        patch.setattr(Prompt, "ids", lambda prompt, target: IDS[prompt.name])
        yield


@pytest.fixture(scope="module")
def data(target):
    works = acceptance.cells(target, SETTINGS)
    results = json.loads(json.dumps({name: work() for name, work in works.items()}))
    return acceptance.summary(SETTINGS, results)


def test_one_pass_tells_the_steps_of_every_k(target, data):
    found = data["methods"]["ngram"]["temperatures"]["0"]
    assert found["ks"] == [1, 2, 3]
    for entry in found["prompts"]:
        for k, steps in zip(found["ks"], entry["steps"], strict=True):
            how = {"k": k, "max_new_tokens": 12}
            real = generate(target, [IDS[entry["prompt"]]], NGram(), **how).trace
            assert steps == real.num_forwards
    whole = found["scopes"]["all"]  # both English prompts
    assert whole["tau"][2] == pytest.approx(24 / sum(e["steps"][2] for e in found["prompts"][1:]))
    assert set(found["scopes"]) >= {"chat", "all", "turkish"}


def test_a_tree_is_drafted_anew_for_every_number_of_nodes(data):
    trees = data["methods"]["trees"]["temperatures"]
    assert trees["0"]["ks"] == [3, 5]
    assert all(len(entry["steps"]) == 2 for entry in trees["0"]["prompts"])
    assert "sampled tree" in trees["1"]["missing"]


def test_sampled_drafts_have_an_overlap_with_the_targets_law(data):
    found = data["methods"]["draft_model int8"]["temperatures"]["1"]
    assert [entry["prompt"] for entry in found["prompts"]] == ["one"]  # no Turkish ones
    (overlap, *_) = found["scopes"]["all"]["overlap"]
    assert 0.8 < overlap <= 1 + 1e-6  # a twin's law is nearly the target's
    assert data["methods"]["ngram"]["temperatures"]["1"]["scopes"]["all"]["overlap"] is None


def test_a_method_without_weights_is_named(data):
    assert "no trained weights for pard" in data["methods"]["pard"]["temperatures"]["0"]["missing"]
    lines = acceptance.table(data).splitlines()
    assert lines[0].split()[:3] == ["greedy", "tau", "k"]
    assert any(line.startswith("pard: There are no trained weights") for line in lines)


def test_texts_are_written_once(target, monkeypatch):
    prompts = [Prompt("one", "chat", "en", ""), Prompt("two", "chat", "en", "")]
    first = known_texts(target, prompts[:1], 6, 1.0, 0)
    assert first == generate_sampled(target, "one")
    assert known_texts(target, prompts, 6, 1.0, 0)[0] == first[0]
    monkeypatch.setattr("specdec_lab.study.measure.known_texts.generate", None)
    assert known_texts(target, prompts[::-1], 6, 1.0, 0)[1] == first[0]
    with pytest.raises(TypeError):
        known_texts(target, prompts, 7, 1.0, 0)  # of another length


def generate_sampled(target, name):
    from specdec_lab.decoding.sampling import Sampling

    how = {"sampling": Sampling(temperature=1.0), "max_new_tokens": 6, "seed": 0}
    return generate(target, [IDS[name]], **how).tokens


def entry(name, tokens, steps, domain="chat", language="en"):
    """What is recorded of a prompt on which a method with k = 1, 4 took so many steps."""
    return {
        "domain": domain,
        "prompt": name,
        "language": language,
        "tokens": tokens,
        "rep4": 0.0,
        "steps": list(steps),
        "judged": [4.0, 2.0],
        "accepted": [2.0, 2.0],
        "overlap": None,
        "cap": 0.9,
    }


def methods_of(**steps):
    """Methods on two prompts of 12 tokens."""
    found = {}
    for label, pairs in steps.items():
        prompts = [entry(name, 12, pair) for name, pair in zip("ab", pairs, strict=True)]
        found[label] = {
            "config": label,
            "ks": [4],
            "temperatures": {"0": {"ks": [1, 4], "prompts": prompts}},
        }
    return found


def test_metrics_by_hand():
    scope = summarise(methods_of(mtp=[(8, 4), (6, 2)]))["mtp"]["temperatures"]["0"]["scopes"]["all"]
    assert scope["tau"] == pytest.approx([24 / 14, 24 / 6])
    assert scope["tau_interval"][1] == pytest.approx([3, 6])  # either prompt twice
    assert scope["alpha"] == [0.5, 1]
    assert scope["marginal"] == [0.5, 0.5]
    assert scope["cap"] == pytest.approx(0.9)


def test_the_rival_is_the_better_copying_method_and_prompts_are_paired():
    methods = methods_of(
        ngram=[(9, 6), (8, 6)], suffix=[(9, 9), (8, 8)], mtp=[(8, 4), (6, 4)], pard=[(8, 7), (6, 4)]
    )
    done = summarise(methods)
    against = done["mtp"]["against_copying"]["chat"]
    assert (against["rival"], against["k"], against["wins"]) == ("ngram", 4, True)
    assert against["difference"] == pytest.approx(1)
    assert against["interval"] == pytest.approx([1, 1])  # on every prompt alike
    assert not done["pard"]["against_copying"]["chat"]["wins"]
    assert done["ngram"]["against_copying"] == {}
    greedy = {name: method["temperatures"]["0"] for name, method in methods.items()}
    assert against_copying("mtp", {"mtp": methods["mtp"]}, greedy) == {}
    text = overview({"methods": done, "temperatures": [0.0]})
    assert "+1.00*" in text
