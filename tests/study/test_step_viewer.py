"""The pictures of the step viewer say what happened, and say it safely."""

import html
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from specdec_lab.decoding.sampling import Sampling
from specdec_lab.study.decisions import record
from specdec_lab.study.step_viewer import number, panel, picture, sentence
from toys import Scripted, ToyDrafter, ToyTarget, pair_of_laws

PROMPT = [0, 1]
PLAIN = Sampling(temperature=1.0)
SETTINGS = {
    "reject": ("auto", PLAIN, "law"),
    "match": ("auto", PLAIN, "one_hot"),
    "match_law": ("match", PLAIN, "law"),
    "reject_one_hot": ("reject", PLAIN, "one_hot"),
    "greedy": ("auto", Sampling(), "one_hot"),
}


def toys(draft: str = "law"):
    target_law, draft_law = pair_of_laws("dense", 5, 4)
    drafter = ToyDrafter(draft_law, argmax=draft != "law", tell_law=draft == "law")
    return ToyTarget(target_law, 4), drafter


def recorded(setting: str = "reject"):
    verify, sampling, draft = SETTINGS[setting]
    target, drafter = toys(draft)
    options = {"k": 3, "sampling": sampling, "seed": 3, "max_new_tokens": 24}
    return record(target, PROMPT, drafter, verify=verify, **options)


def test_plain_steps_and_a_bonus_are_told():
    target, _ = toys()
    script = Scripted(lambda tokens: [] if len(tokens) < 4 else [tokens[0]])
    options = {"sampling": Sampling(), "seed": 0, "max_new_tokens": 8}
    told = [sentence(d) for d in record(target, PROMPT, script, k=2, **options)]
    assert any("nothing was drafted" in text for text in told)
    always = Scripted(lambda tokens: [])
    right = record(target, PROMPT, always, k=2, **options)
    answer = [int(d.written.strip("<>")) for d in right]
    oracle = Scripted(lambda tokens: answer[len(tokens) - 2 :])
    told = record(target, PROMPT, oracle, k=3, **options)
    assert [d.outcome for d in told[:4]] == ["accepted"] * 3 + ["bonus"]
    assert "for free" in sentence(told[3])


class Words(HTMLParser):
    """Tags opened and closed, and the text between."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("br",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_picture_is_sound_html_with_a_description_and_the_coin(setting):
    for d in recorded(setting):
        page = picture(d)
        parsed = Words(page)
        assert parsed.open == []
        assert html.escape(sentence(d), quote=True) in page
        assert d.written in parsed.text
        assert (d.coin is None) == ("the coin" not in parsed.text)
        assert ("residual" in parsed.text) == (d.outcome == "recovered")


def test_tokens_that_look_like_html_do_no_harm():
    decision = replace(recorded()[0], before="<script>", written='"><img src=x onerror=1>')
    page = picture(decision)
    assert "<script" not in page
    assert "<img" not in page


def test_numbers_have_three_places():
    assert [number(x) for x in (0, 0.0001, 0.0123, 1.0)] == ["0.000", "< 0.001", "0.012", "1.000"]


def test_the_panel_has_one_slider_and_moves_through_the_decisions():
    decisions = recorded()
    shown = panel(decisions, start=2)
    assert list(shown.sliders) == ["decision"]
    assert "decision = 2:" in shown.view.value
    before = shown.view.value
    shown.sliders["decision"].value = 3
    assert "decision = 3:" in shown.view.value
    assert shown.view.value != before
    for place in range(1, len(decisions) + 1):
        shown.sliders["decision"].value = place
        shown.redraw()
