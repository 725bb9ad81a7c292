"""`load_proposer`: names, the words of vLLM, plug-ins, and the right word for a wrong one.

pytest tests/proposers/test_load_proposer.py
"""

import subprocess
import sys

import pytest

from specdec_lab.decoding.records import Draft
from specdec_lab.proposers import METHODS, OTHER_WORDS, VARIANTS, load_proposer
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.ngram import NGram
from specdec_lab.proposers.suffix import Suffix
from toys import random_target

LEARNED = {"mlp_speculator", "pard", "mtp", "eagle"}  # these want weights that fit the target


class Nothing:
    """A plug-in that inherits from nobody and proposes nothing."""

    def __init__(self, width: int = 2) -> None:
        self.width = width

    def propose(self, context, k, sampling, randomness):
        """An empty draft."""
        return Draft.empty(context.tokens.shape[0])


class Reader:
    """A plug-in that wants the target, or can do without."""

    def __init__(self, target=None, width: int = 2) -> None:
        self.target = target

    propose = Nothing.propose


class Mute:
    """No proposer: it has no propose."""


@pytest.fixture
def plug_in(monkeypatch):
    """The dotted path of this module, whatever name the test runner gave it."""
    monkeypatch.setitem(sys.modules, "our.plug_ins", sys.modules[__name__])
    return "our.plug_ins"


@pytest.mark.parametrize("config", [None, "", "none", {"method": "none"}])
def test_none_is_plain_decoding(config):
    assert load_proposer(config) is None


def test_ngram_with_our_names_and_with_those_of_vllm():
    ours = {"method": "ngram", "num_speculative_tokens": 7, "min_n": 2, "max_n": 5}
    vllm = {
        "method": "ngram",
        "num_speculative_tokens": 7,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }
    for config in (ours, vllm):
        kept = dict(config)
        proposer = load_proposer(config)
        assert isinstance(proposer, NGram)
        assert (proposer.min_n, proposer.max_n, proposer.default_k) == (2, 5, 7)
        assert config == kept  # the caller's mapping is left alone
    assert load_proposer("ngram").default_k == NGram().default_k


def test_suffix_with_our_names_and_with_those_of_vllm():
    ours = {"max_depth": 20, "factor": 2.0, "min_token_prob": 0.2, "max_requests": 5}
    vllm = {
        "suffix_decoding_max_tree_depth": 20,
        "suffix_decoding_max_spec_factor": 2.0,
        "suffix_decoding_min_token_prob": 0.2,
        "suffix_decoding_max_cached_requests": 5,
    }
    for options in (ours, vllm):
        proposer = load_proposer({"method": "suffix", "num_speculative_tokens": 6, **options})
        assert isinstance(proposer, Suffix)
        assert (proposer.max_depth, proposer.factor, proposer.min_token_prob) == (20, 2.0, 0.2)
        assert (proposer.history.max_requests, proposer.default_k) == (5, 6)


def test_a_plug_in_by_its_path(plug_in):
    proposer = load_proposer(
        {"method": f"{plug_in}.Nothing", "width": 3, "num_speculative_tokens": 6}
    )
    assert (type(proposer), proposer.width, proposer.default_k) == (Nothing, 3, 6)
    assert type(load_proposer(f"{plug_in}.Nothing")) is Nothing
    vllm = {"method": "custom_class", "model": f"{plug_in}.Nothing"}
    assert type(load_proposer(vllm)) is Nothing


def test_the_target_goes_to_whoever_has_an_argument_of_that_name(plug_in):
    target, asked = object(), []
    path = f"{plug_in}.Reader"
    assert load_proposer(path).target is None
    assert load_proposer(path, target).target is target
    assert load_proposer({"method": path, "width": 1}, lambda: target).target is target
    load_proposer("ngram", lambda: asked.append("loaded"))
    assert asked == []


def test_a_draft_model_needs_the_target_and_says_so():
    with pytest.raises(ValueError, match=r"draft_model needs the target.*\(config, target\)"):
        load_proposer("draft_model")
    with pytest.raises(ValueError, match="its options are model, drafting, num_speculative_tokens"):
        load_proposer({"method": "draft_model", "width": 1})
    config = {
        "method": "draft_model",
        "model": "int8",
        "draft_sample_method": "greedy",
        "num_speculative_tokens": 3,
    }
    proposer = load_proposer(config, random_target())
    assert isinstance(proposer, DraftModel)
    assert (proposer.drafting, proposer.default_k) == ("greedy", 3)


@pytest.mark.parametrize("path", ["Mute", "Absent", "pytest"])
def test_a_path_to_no_proposer_gets_a_sentence(plug_in, path):
    with pytest.raises(ValueError, match=rf"our\.plug_ins\.{path}"):
        load_proposer(f"{plug_in}.{path}")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("draft", ["'draft_model'"]),
        ("deepseek_mtp", ["'mtp'", "ngram"]),
        ("prompt_lookup", ["'ngram'"]),
        ("Prompt-Lookup", ["'ngram'"]),
        ("ngarm", ["'ngram'"]),
        ("eagel", ["'eagle'"]),
        ("EAGLE-3", ["'eagle_3'"]),
        ("zzz", ["use ngram,", "none or"]),
        ("no.such.module", ["package.module.Class"]),
    ],
)
def test_a_wrong_word_gets_the_right_one(method, words):
    with pytest.raises(ValueError, match=method) as caught:
        load_proposer(method)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("method", sorted(OTHER_WORDS))
def test_every_known_word_is_answered(method):
    with pytest.raises(ValueError, match=r"use ngram, .*none"):
        load_proposer(method)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, 'the config needs a "method"'),
        ({"method": "custom_class"}, 'the config needs a "model"'),
        (3, "a proposer is a name or"),
        ({"method": "ngram", "width": 1}, "width.*its options are min_n, max_n, occurrence"),
        ({"method": "ngram", "max_n": 2, "prompt_lookup_max": 2}, "are the same option"),
        ({"method": "eagle3", "version": 1}, "eagle3 says its version already"),
        ({"method": "ngram", "num_speculative_tokens": 1.5}, "num_speculative_tokens must be"),
        ({"method": "ngram", "num_speculative_tokens": True}, "num_speculative_tokens must be"),
    ],
)
def test_a_wrong_config_gets_a_sentence(config, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_proposer(config)


def test_the_menu_holds_what_is_built():
    assert {method for method, _ in VARIANTS.values()} <= set(METHODS)
    assert not set(METHODS) & (set(VARIANTS) | set(OTHER_WORDS))
    for method in set(METHODS) - LEARNED:
        assert isinstance(load_proposer(method, random_target()), Proposer)


@pytest.mark.parametrize("method", sorted(LEARNED | {"eagle_1", "eagle_3"}))
def test_a_learned_method_without_weights_says_how_to_train_them(monkeypatch, tmp_path, method):
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    with pytest.raises(OSError, match=f"python -m specdec_lab train {method}"):
        load_proposer(method, random_target())


def test_a_proposer_without_propose_says_what_it_needs():
    with pytest.raises(NotImplementedError, match="needs a method propose"):
        Proposer().propose(None, 1, None, None)


def test_plain_decoding_loads_no_torch():
    code = (
        "import sys; from specdec_lab.proposers import load_proposer; load_proposer('none');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
