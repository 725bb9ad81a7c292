"""Table and figures over all methods, from small recordings.

pytest tests/study/test_method_table.py
"""

import pytest

from specdec_lab.study.figures.measured import MEASURED
from specdec_lab.study.figures.measured.acceptance import vocabulary_caps
from specdec_lab.study.measure.acceptance_summary import summarise
from specdec_lab.study.method_table import best_k, how_far, what_it_takes

EAGLE = {"method": "eagle", "version": 3}
TREE = EAGLE | {"tree": True}
CARD = {"parameters": 5_200_000, "megabytes": 10.4, "training_tokens": 700_000}
CARD |= {"tokens_seen": 2_100_000, "training_minutes": 31.5}


def cell(label, config, k, tau, propose, **more):
    config = {"method": config} if isinstance(config, str) else config
    seconds = {"propose": propose, "score": 0.04, "verify": 0.0, "other": 0.0}
    speedup = tau * 0.04 / (0.04 + propose)
    scope = {"tau": tau, "tau_interval": [tau - 0.1, tau + 0.1], "step_seconds": seconds}
    scope |= {"speedup": speedup, "speedup_interval": [speedup - 0.1, speedup + 0.1]}
    scope |= {"speedup_rounds": [speedup, speedup], "draft_cost": propose / 0.04}
    scopes = dict.fromkeys(("chat", "json", "all"), scope)
    known = {"label": label, "config": config, "k": k, "temperature": 0.0, "scopes": scopes}
    return known | {"card": {}} | more


DECODE = {
    "domains": ["chat", "json"],
    "prompts": 3,
    "max_new_tokens": 48,
    "rounds": 3,
    "cells": {
        "plain": cell("plain", "none", 0, 1.0, 0.0),
        "ngram, k = 4": cell("ngram", "ngram", 4, 1.2, 0.001),
        "eagle 3, k = 2": cell("eagle 3", EAGLE, 2, 1.6, 0.01, card=CARD),
        "eagle 3, k = 4": cell("eagle 3", EAGLE, 4, 1.7, 0.02, card=CARD),
        "eagle 3 tree, k = 8": cell("eagle 3 tree", TREE, 8, 2.0, 0.04),
        "hot": cell("eagle 3", EAGLE, 2, 9.9, 0.01, temperature=1.0),
    },
}


def entry(domain, name, steps, cap, chance):
    judged = [20.0, 20 * chance, 20 * chance**2]
    shares = [0.6, None, 0.4]
    known = {"domain": domain, "prompt": name, "language": "en", "tokens": 24, "rep4": 0.1}
    known |= {"steps": steps, "judged": judged, "accepted": [j * chance for j in judged]}
    return known | {"overlap": shares, "cap": cap}


def method(config, ks, steps, cap=None, chance=0.5, tree=False):
    prompts = [
        entry(domain, name, [s + extra for s in steps], cap, chance)
        for domain in ("chat", "json")
        for name, extra in (("a", 0), ("b", 1))
    ]
    found = {"ks": ks, "tree": tree, "prompts": prompts}
    warm = {"missing": "A sampled tree"} if tree else found
    return {"config": config, "ks": ks, "temperatures": {"0": found, "1": warm}}


METHODS = {
    "ngram": method("ngram", [1, 4], [20, 19], chance=0.2),
    "suffix": method("suffix", [1, 4], [21, 20], chance=0.2),
    "eagle 3": method(EAGLE, [1, 2, 4], [18, 14, 12], cap=0.9, chance=0.7),
    "eagle 3 tree": method(TREE, [8], [10], cap=0.9, tree=True),
    "pard": {"config": "pard", "ks": [4], "temperatures": {"0": {"missing": "no weights"}}},
}
ACCEPTANCE = {
    "domains": ["chat", "json"],
    "temperatures": [0.0, 1.0],
    "methods": summarise(METHODS),
}
METHODS["pard"]["temperatures"]["1"] = {"missing": "no weights"}
DATA = {"decode": {"here": DECODE}, "acceptance": {"here": ACCEPTANCE}}
OURS = [slug for slug in MEASURED if slug.startswith("13_")]


def row(text, name):
    return next(line for line in text.splitlines() if line.startswith(name)).split()


def test_what_a_method_takes():
    eagle = row(what_it_takes(DECODE), "EAGLE-3 ")
    assert eagle[1:6] == ["5.2", "10.4", "700", "2.1", "31.5"]
    assert eagle[6:] == ["4", "0.50", "0.12"]  # a draft of four takes half a plain step
    assert row(what_it_takes(DECODE), "n-gram")[1:6] == ["-"] * 5


def test_how_far_drafts_go_and_where_they_beat_copying():
    text = how_far(ACCEPTANCE, ("chat", "json", "maths"))
    eagle = row(text, "EAGLE-3 ")
    assert eagle[1:4] == ["4", f"{48 / 25:.2f}", "1.85-2.00*"]
    assert eagle[-1] == "-"
    assert "*" not in " ".join(row(text, "suffix"))
    assert "PARD" not in text


def test_the_foreseen_k_is_one_that_was_never_timed():
    text = best_k(ACCEPTANCE, DECODE, ("chat",))
    assert row(text, "EAGLE-3 ")[1:] == [f"{48 / 29 / 1.25:.2f}", "(k", "2)"]
    assert "PARD" not in text


@pytest.mark.parametrize("slug", OURS)
def test_every_figure_is_drawn_and_said_in_words(slug):
    figure = MEASURED[slug]
    data = DATA[figure.part]
    assert figure.draw(data).axes
    assert len(figure.describe(data)) > 40


def test_the_finding_names_the_fastest_method_of_every_domain():
    title = MEASURED["13_all_methods"].draw(DATA["decode"]).get_suptitle()
    assert title == "Fastest: EAGLE-3 on chat and JSON"
    words = MEASURED["13_all_methods"].describe(DATA["decode"])
    assert "EAGLE-3: chat 1.28 (k 2)" in words
    assert "3 prompts a kind of text, answers of at most 48 tokens, 3 rounds" in words


def test_prices_and_taus_stand_where_they_were_measured():
    chat, _ = MEASURED["13_price"].draw(DATA["decode"]).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in chat.lines}
    assert lines["EAGLE-3"] == [pytest.approx([1.25, 1.6]), pytest.approx([1.5, 1.7])]


def test_trees_have_no_positions_and_the_cap_is_marked():
    chat, _ = MEASURED["13_by_position"].draw(DATA["acceptance"]).axes
    labels = [line.get_label() for line in chat.lines]
    assert "EAGLE-3" in labels
    assert "EAGLE-3, tree" not in labels
    assert chat.collections[0].get_segments()[0][0][1] == pytest.approx(0.9)
    assert vocabulary_caps(ACCEPTANCE)["0"]["chat"] == pytest.approx(0.9)


def test_a_win_over_copying_is_a_full_mark():
    chat, _ = MEASURED["13_against_copying"].draw(DATA["acceptance"]).axes
    eagle = next(line for line in chat.lines if line.get_marker() == "h")
    assert eagle.get_markerfacecolor() == eagle.get_color()
    assert "EAGLE-3: chat, JSON" in MEASURED["13_against_copying"].describe(DATA["acceptance"])
    assert chat.get_title(loc="left") == "chat\nless n-gram"
