"""The best k from acceptance and price.

pytest tests/study/test_best_k.py
"""

import pytest

from specdec_lab.study.best_k import foreseen, price_of_steps


def cell(label, method, k, propose, score=0.04, temperature=0.0):
    seconds = {"propose": propose, "score": score, "verify": 0.0, "other": 0.0}
    scopes = {"all": {"step_seconds": seconds}}
    config = {"method": method}
    return {"label": label, "config": config, "k": k, "temperature": temperature, "scopes": scopes}


DECODE = {
    "cells": {
        "plain": cell("plain", "none", 0, 0.0),
        "mtp, k = 1": cell("mtp", "mtp", 1, 0.005),
        "mtp, k = 3": cell("mtp", "mtp", 3, 0.013, 0.044),
        "twin": cell("twin", "draft_model", 4, 0.048, 0.044),
        "ngram": cell("ngram", "ngram", 4, 0.001, 0.044),
        "hot": cell("hot", "mtp", 4, 0.001, 0.044, temperature=1.0),
    }
}


def method(taus, ks):
    scope = {"tau": taus, "tau_interval": [[0.9 * tau, 1.1 * tau] for tau in taus]}
    return {"temperatures": {"0": {"ks": ks, "scopes": {"chat": scope}}}}


def test_a_step_is_priced_in_plain_steps():
    assert price_of_steps(DECODE, "mtp", [1, 2, 3]) == pytest.approx(
        [0.045 / 0.04, 0.051 / 0.04, 0.057 / 0.04]
    )
    assert price_of_steps(DECODE, "twin", [2]) == pytest.approx([(0.024 + 0.042) / 0.04])
    assert price_of_steps(DECODE, "ngram", [1, 4]) == pytest.approx([0.041 / 0.04, 0.045 / 0.04])
    assert price_of_steps(DECODE, "hot", [1]) is None
    assert price_of_steps(DECODE, "pard", [1]) is None


def test_the_fastest_k_is_found_and_plain_decoding_where_nothing_is_faster():
    methods = {
        "mtp": method([1.35, 1.6, 1.7], [1, 2, 3]),
        "twin": method([1.1, 1.2], [2, 4]),
        "pard": method([2.0], [1]),
        "eagle": {"temperatures": {"0": {"missing": "no weights"}}},
    }
    found = foreseen({"methods": methods}, DECODE)
    assert set(found) == {"mtp", "twin"}
    best = found["mtp"]["chat"]
    assert best.k == 2
    assert best.speedup == pytest.approx(1.6 / (0.051 / 0.04))
    assert best.interval == pytest.approx((0.9 * best.speedup, 1.1 * best.speedup))
    assert (found["twin"]["chat"].k, found["twin"]["chat"].speedup) == (0, 1)
