"""Speed-ups by kind of text: what is compared, what is drawn, and what is refused.

pytest tests/study/test_speed_by_domain.py
"""

from dataclasses import replace

import pytest
import torch

from made_speeds import made_speeds
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study import speed_by_domain as module
from specdec_lab.study.figures.speed_bars import best_in_words, speed_figure
from specdec_lab.study.speed_by_domain import as_picture, speed_by_domain
from specdec_lab.study.speedup import WARM_UP, measure_speedup
from toys import random_target

PROMPTS = {"chat": [1, 2, 3, 1, 2, 3, 1], "json": [4, 5, 4, 5]}
LOOKS = [{"color": "#0173b2"}, {"color": "#ca9161"}]


class Asked:
    def __init__(self, domain):
        self.domain = domain

    def ids(self, target):
        return PROMPTS[self.domain]


@pytest.fixture
def found(monkeypatch):
    monkeypatch.setattr(module, "load_prompts", lambda domain, language: [Asked(domain)])
    target = random_target(dtype=torch.float32)
    ways = {"n-gram, k = 3": {"proposer": NGram(), "k": 3}}
    return speed_by_domain(target, ("chat", "json"), ways, max_new_tokens=10)


def test_every_domain_is_measured_with_its_prompt(found):
    assert list(found) == ["chat", "json"]
    target = random_target(dtype=torch.float32)
    alone = measure_speedup(target, [PROMPTS["json"]], {}, max_new_tokens=10)
    assert found["json"]["plain"].tokens == alone["plain"].tokens


def test_all_ways_warm_up_once(monkeypatch):
    monkeypatch.setattr(module, "load_prompts", lambda domain, language: [Asked(domain)])
    warmed = []

    def measure(target, prompts, ways, **how):
        warmed.append((prompts, how.get("warm_up", WARM_UP)))
        return {}

    monkeypatch.setattr(module, "measure_speedup", measure)
    speed_by_domain(None, ("chat", "json"), {}, max_new_tokens=10)
    assert warmed == [([PROMPTS["chat"]], WARM_UP), ([PROMPTS["json"]], 0)]


def test_another_text_than_plain_decoding_is_no_speed_up(found, monkeypatch):
    wrong = replace(found["json"]["n-gram, k = 3"], tokens=[[0]])
    found["json"].ways["n-gram, k = 3"] = wrong
    monkeypatch.setattr(module, "measure_speedup", lambda *args, **how: found["json"])
    with pytest.raises(RuntimeError, match="n-gram, k = 3 on chat writes another text"):
        speed_by_domain(None, ("chat",), {})


def test_a_picture_has_every_number_with_its_spread(found):
    data = as_picture(found)
    assert (data["tokens"], data["rounds"]) == (10, 3)
    speed = found["json"]["n-gram, k = 3"]
    json = data["domains"][1]
    assert json["domain"] == "json"
    assert list(json["ways"]) == ["n-gram, k = 3"]
    entry = json["ways"]["n-gram, k = 3"]
    assert entry["tau"] == speed.tau
    assert entry["steps"] == {
        "median": speed.steps.median,
        "low": speed.steps.low,
        "high": speed.steps.high,
    }


def test_a_bar_has_a_whisker_and_its_axis_says_what_it_contains():
    (axes,) = speed_figure(made_speeds("a", "b"), LOOKS).axes
    (whisker,) = axes.collections[0].get_segments()
    assert whisker[:, 0] == pytest.approx([1.9, 2.2])
    assert "without the prompt" in axes.get_xlabel()
    assert "one answer of 24 tokens; median and range of 3 rounds" in axes.get_xlabel()
    (axes,) = speed_figure(made_speeds("a", "b"), LOOKS, ("speedup",)).axes
    assert "prompt included" in axes.get_xlabel()


def test_ways_are_named_where_there_are_several():
    legend = speed_figure(made_speeds("a", "b"), LOOKS).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert not speed_figure(made_speeds("a"), LOOKS[:1]).legends


def test_a_refused_speed_up_has_no_bar_and_wins_nothing():
    data = made_speeds("a", "b")
    data["domains"][0]["ways"]["a"]["refused"] = True
    (axes,) = speed_figure(data, LOOKS).axes
    assert [bar.get_width() for bar in axes.patches] == [1.9]
    assert axes.texts[0].get_text() == "refused: above tau 2.50"
    assert best_in_words(data) == "At best 1.90 x (1.80-2.10) without the prompt: b, on chat"
    data["domains"][0]["ways"]["b"]["refused"] = True
    assert best_in_words(data).startswith("No result")
    assert speed_figure(data, LOOKS).axes[0].texts
