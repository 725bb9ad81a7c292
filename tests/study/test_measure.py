"""The measuring room: the right work, arms that alternate, ratios by round. No clock is tested.

pytest tests/study/test_measure.py
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_lab.decoding.checkpoint import target_from_hf
from specdec_lab.study import measure


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


def test_arms_alternate_within_a_round():
    order: list[str] = []
    arms = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert measure.alternate(arms, 3) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert order == list("ababab")


def test_the_stopwatch_times_any_number_of_rows(target):
    timed = measure.stopwatch(target, context=10, most_rows=5)
    assert all(timed(rows) > 0 for rows in (1, 5, 1))


def test_cost_is_relative_to_one_row(target):
    result = measure.measure_cost(target, rows=(1, 2, 5), context=16, rounds=2)
    assert set(result["cost"]) == {"1", "2", "5"}
    assert result["cost"]["1"] == 1
    assert all(value > 0 for value in result["seconds"].values())


def test_peers_do_the_same_work_and_write_the_same_text(target, peer):
    lines: list[str] = []
    work = {"loops": [[1, 2, 3, 1, 2, 3, 1], [4, 5, 4]]}
    result = measure.measure_peers(
        target, peer, work, lines.append, max_new_tokens=12, k=3, rounds=2
    )
    domain = result["domains"]["loops"]
    assert domain["same_text"] == dict.fromkeys(domain["tokens_per_second"], 2)
    assert set(domain["tokens_per_second"]) == {
        "transformers",
        "ours",
        "transformers_lookup",
        "ours_ngram",
    }
    assert all(len(rounds) == 2 for rounds in domain["rounds"].values())
    assert len(lines) == 1


def test_ratios_are_taken_round_by_round():
    texts = {arm: [[1] * 10] for arm in ("ours", "transformers", "ours_ngram")}
    texts["transformers_lookup"] = [[1] * 10]
    seconds = {
        "ours": [1.0, 4.0],
        "transformers": [2.0, 8.0],
        "ours_ngram": [0.5, 2.0],
        "transformers_lookup": [1.0, 8.0],
    }
    result = measure._speeds(seconds, texts)
    assert result["ratios"]["plain_over_transformers"] == {"median": 2, "low": 2, "high": 2}
    assert result["ratios"]["ngram_over_lookup"] == {"median": 3, "low": 2, "high": 4}
    assert result["tokens_per_second"]["ours"] == pytest.approx(6.25)


def test_overhead_is_a_share(target):
    shares = measure.measure_overhead(target, [1, 2, 3], max_new_tokens=8, rounds=1)
    assert set(shares) == {"greedy", "temperature_1"}
    assert all(0 < share < 1 for share in shares.values())


def test_the_machine_has_a_short_name():
    assert measure.machine_name().endswith("-threads")
    assert " " not in measure.machine_name()
