"""Batches, time per proposal and the profile of a step on a tiny target. No clock is tested.

pytest tests/study/test_measure_batch.py
"""

import json

import pytest
import torch

from specdec_lab.decoding.low_bit import low_bit_copy
from specdec_lab.study.measure import batch, proposers
from specdec_lab.study.measure.products import back_to_back, product_layers
from specdec_lab.study.measure.profile import PARTS, measure_profile, profile_table
from toys import random_target


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


@pytest.fixture
def short_prompts(monkeypatch):
    """Prompts of a few tokens of the toy's vocabulary, each another."""
    monkeypatch.setattr(
        "specdec_lab.prompts.Prompt.ids", lambda prompt, target: [len(prompt.text) % 30, 1, 2, 1]
    )


def test_batches_do_the_same_requests_in_groups(target, short_prompts):
    settings = batch.settings(True) | {"batches": [1, 4], "max_new_tokens": 6}
    results = {name: work() for name, work in batch.cells(target, settings).items()}
    data = batch.summary(settings, json.loads(json.dumps(results)))
    for ways in data["batches"].values():
        assert len(ways) == 5
        assert {way["num_tokens"] for way in ways.values()} == {4 * 6}  # greedy, all the same
        assert ways[batch.PLAIN]["speedup"] == 1
        assert ways[batch.PLAIN]["tau"] == 1
    taus = [data["batches"][size]["ngram, k = 4"]["tau"] for size in ("1", "4")]
    assert taus[0] == taus[1]
    assert len(batch.table(data).splitlines()) == 2 + 10


def trace(*latencies, seconds):
    """A packed trace of requests of two tokens, done after so many seconds."""
    step = {"drafted": [], "tokens": [0], "num_accepted": 0}
    rows = [[step | {"at": 0.5}, step | {"at": latency}] for latency in latencies]
    spent = {"prefill": 0.5, "score": seconds - 0.5}
    return {"rows": rows, "seconds": spent, "num_forwards": 2}


def test_latency_is_of_requests_and_throughput_of_the_whole_batch():
    settings = batch.settings(True) | {"batches": [4]}
    ways = {
        batch.PLAIN: [trace(1.0, 2.0, 3.0, 4.0, seconds=4.0)],
        "fast": [trace(1.0, 1.0, 2.0, 2.0, seconds=2.0)],
    }
    data = batch.summary(settings, {"one": {"batch": 4, "round": 0, "ways": ways}})
    plain, fast = data["batches"]["4"].values()
    assert plain["tokens_per_second"] == 2
    assert fast["speedup"] == 2
    assert (plain["latency_median"], fast["latency_median"]) == (2.5, 1.5)
    assert plain["latency_p90"] == pytest.approx(3.7)
    assert plain["step_seconds"] == pytest.approx(1.75)


def test_time_per_proposal_of_every_kind(target, short_prompts):
    settings = proposers.settings(True)
    settings |= {"methods": {"ngram": "ngram", "draft": {"method": "draft_model"}}}
    settings |= {"max_new_tokens": 8, "calls": 2, "histories": [0, 600]}
    results = {name: work() for name, work in proposers.cells(target, settings).items()}
    data = proposers.summary(settings, json.loads(json.dumps(results)))
    assert data["methods"]["ngram"]["products_ms"] is None
    draft = data["methods"]["draft"]
    assert draft["token_ms"] == pytest.approx(draft["products_ms"] + draft["outside_ms"])
    assert [found["tokens"] for found in data["histories"]] == [0, 600]
    assert all(found["proposal_ms"] > 0 for found in data["histories"])
    assert "draft" in proposers.table(data)


def test_the_history_that_is_measured_is_found(monkeypatch):
    drafted = []
    whole = proposers.Suffix.propose

    def spy(self, *arguments):
        draft = whole(self, *arguments)
        drafted.append(int(draft.count))
        return draft

    monkeypatch.setattr(proposers.Suffix, "propose", spy)
    proposers.measure_history(2000, k=8, calls=1)
    assert max(drafted) == 8  # the row stands in the history, and what followed it there is known


def test_products_are_all_products_of_a_forward(target):
    layers = product_layers(target.model)
    assert len(layers) == 4 * 2 + 1  # qkv, output, gate_up, down of two layers, and the head
    assert layers[-1].out_features == target.vocab_size
    low = product_layers(low_bit_copy(target, 8).model)
    assert len(low) == len(layers)
    back_to_back(low, 5)()


def test_a_profile_adds_up_to_its_step(target):
    profile = measure_profile(target, [1, 2, 3], k=2, max_new_tokens=8, rounds=3)
    assert profile["weight_bytes"] % 4 == 0
    for step in profile["steps"].values():
        assert step["step"] == pytest.approx(sum(step[part] for part in PARTS))
    assert profile["steps"]["k = 2"]["propose"] > profile["steps"]["plain"]["propose"]
    assert "step / reading" in profile_table(profile)
