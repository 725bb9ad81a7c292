"""A race's arithmetic: medians, ratios by round, texts compared token by token. No clock is tested.

pytest tests/study/test_race.py
"""

import pytest

from specdec_lab.study.measure import race
from specdec_lab.study.measure.race import Heat

PAIRS = {"a_over_b": ("a", "b"), "a_over_absent": ("a", "absent")}


def cell(seconds, tokens=None, forwards=None):
    tokens = tokens or {arm: [[1] * 10] for arm in seconds}
    return {
        "seconds": seconds,
        "tokens": tokens,
        "forwards": forwards or dict.fromkeys(seconds),
    }


def test_ratios_are_taken_round_by_round():
    rounds = [cell({"a": 1.0, "b": 2.0}), cell({"a": 4.0, "b": 4.0}), cell({"a": 2.0, "b": 6.0})]
    result = race.domain_summary(rounds, PAIRS, right="b")
    assert result["ratios"] == {"a_over_b": {"median": 2, "low": 1, "high": 3}}
    assert result["tokens_per_second"] == pytest.approx({"a": 5.0, "b": 2.5})
    assert result["rounds"]["a"] == [10, 2.5, 5]


def test_texts_are_compared_token_by_token_and_the_worst_round_counts():
    tokens = {"b": [[1, 2, 3, 4], [5, 6, 7, 8]], "a": [[1, 2, 3, 4], [5, 0, 7, 8]]}
    good = cell({"a": 1, "b": 1}, {"b": tokens["b"], "a": tokens["b"]}, {"a": 4, "b": None})
    result = race.domain_summary([good, cell({"a": 1, "b": 1}, tokens)], PAIRS, right="b")
    assert (result["prompts"], result["same_text"]) == (2, {"a": 1, "b": 2})
    assert result["same_tokens"] == {"a": 5 / 8, "b": 1}
    assert result["tokens_per_forward"] == {"a": 2, "b": None}
    text = race.table({"chat": result})
    assert "Another text: a on 1 of 2 chat prompts." in text
    assert text.count("a_over_b") == 1


def test_every_round_warms_up_and_gives_all_arms_the_same_work():
    calls = []

    def arm(name):
        def run(prompts, budget):
            calls.append((name, len(prompts), budget))
            return Heat(1.0, [[0] * budget for _ in prompts], 3)

        return run

    found = race.run_round({"a": arm("a"), "b": arm("b")}, [[1], [2]], 20)
    warm = [(name, 1, race.WARM_UP) for name in "ab"]
    assert calls == [*warm, ("a", 2, 20), ("b", 2, 20)]
    assert found["forwards"] == {"a": 3, "b": 3}
    assert [len(tokens) for tokens in found["tokens"]["b"]] == [20, 20]
