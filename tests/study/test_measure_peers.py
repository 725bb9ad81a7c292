"""Ours beside transformers: the same work, the same text, ratios by round. No clock is tested.

pytest tests/study/test_measure_peers.py
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_lab.decoding.checkpoint import target_from_hf
from specdec_lab.study.measure import peers


@pytest.fixture(scope="module")
def peer():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def target(peer):
    return target_from_hf(peer)


def test_peers_do_the_same_work_and_write_the_same_text(target, peer):
    work = [[1, 2, 3, 1, 2, 3, 1], [4, 5, 4]]
    domain = peers.measure_domain(target, peer, work, max_new_tokens=12, k=3, rounds=2)
    assert domain["same_text"] == dict.fromkeys(domain["tokens_per_second"], 2)
    assert set(domain["tokens_per_second"]) == {
        "transformers",
        "ours",
        "transformers_lookup",
        "ours_ngram",
    }
    assert all(len(rounds) == 2 for rounds in domain["rounds"].values())
    data = peers.summary(peers.settings(quick=True), {"loops": domain})
    assert peers.table(data).count("\nloops") == len(domain["ratios"])


def test_ratios_are_taken_round_by_round():
    texts = {arm: [[1] * 10] for arm in ("ours", "transformers", "ours_ngram")}
    texts["transformers_lookup"] = [[1] * 10]
    seconds = {
        "ours": [1.0, 4.0],
        "transformers": [2.0, 8.0],
        "ours_ngram": [0.5, 2.0],
        "transformers_lookup": [1.0, 8.0],
    }
    result = peers._speeds(seconds, texts)
    assert result["ratios"]["plain_over_transformers"] == {"median": 2, "low": 2, "high": 2}
    assert result["ratios"]["ngram_over_lookup"] == {"median": 3, "low": 2, "high": 4}
    assert result["tokens_per_second"]["ours"] == pytest.approx(6.25)
