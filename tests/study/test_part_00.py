"""Notebook 00: its figures, coloured tokens, self-check and exercises, without a model.

pytest tests/study/test_part_00.py
"""

import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from specdec_lab.decoding.decode import Generation
from specdec_lab.decoding.records import RowStep
from specdec_lab.decoding.trace import Trace
from specdec_lab.study import exercises, self_check
from specdec_lab.study.coloured import ColouredText, pieces, visible
from specdec_lab.study.figures import part_00
from specdec_lab.study.figures.style import TOKEN_COLORS, TOKEN_MARKS, render

STEPS = [
    [[" one", "accepted"], [" two", "accepted"], ["$_{x}$", "bonus"]],
    [["\n", "recovered"]],
    [[" <b>&", "plain"]],
]
DATA = {"k": 2, "steps": STEPS, "plain_forwards": 5}


class Letters:
    """A tokenizer whose ids are bytes: the letter ş is two tokens."""

    def decode(self, ids, **options):
        """The text of bytes, with the replacement character for half a letter."""
        return bytes(ids).decode("utf-8", errors="replace")


def step(drafted, tokens, num_accepted):
    """One step of one row."""
    return RowStep(list(drafted), list(tokens), num_accepted, at=0.0)


def run(*steps):
    """A generation of one prompt with these steps."""
    tokens = [token for one in steps for token in one.tokens]
    return Generation([tokens], ["length"], Trace([list(steps)], num_forwards=len(steps)))


def words(figure):
    """All text of a figure."""
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_promise_has_one_size_whatever_the_passes():
    tokens = [["letters", "accepted"]] * 26
    passes = [[tokens], [[token] for token in tokens]]
    lines = [list(part_00.layout(steps))[-1].line for steps in passes]
    assert lines == [1, 2]  # one pass or many: other gaps, other lines
    sizes = {tuple(part_00.promise(DATA | {"steps": s}).get_size_inches()) for s in passes}
    assert len(sizes) == 1


def test_the_promise_shows_every_token_with_its_mark_and_both_counts():
    shown = words(part_00.promise(DATA))
    assert [text for text in shown if text in (" one", " two", "$_{x}$", "↵", " <b>&")]
    for kind in ("accepted", "bonus", "recovered", "plain"):
        assert kind in shown
        assert TOKEN_MARKS[kind] in shown
    assert "5 forwards" in shown
    assert "3 forwards" in shown
    assert "The same 5 tokens in 3 forward passes instead of 5" in shown


def test_plain_decoding_promises_nothing():
    alone = [[[" a", "plain"]], [[" b", "plain"]]]
    shown = words(part_00.promise({"k": 0, "steps": alone, "plain_forwards": 2}))
    assert "Plain decoding: 2 tokens, 2 forward passes of the model" in shown


def test_text_with_dollar_signs_and_tags_is_drawn_as_it_is():
    assert render(part_00.promise(DATA), "png", dpi=40).startswith(b"\x89PNG")


def test_the_sentence_counts_what_the_picture_shows():
    sentence = part_00.describe_promise(DATA)
    assert sentence.startswith("k = 2: 5 tokens in 3 target forwards instead of 5, tau = 1.67")
    assert "(2 accepted, 1 bonus, 1 recovered, 1 plain)" in sentence


def test_boxes_stay_on_the_page_and_do_not_overlap():
    boxes = list(part_00.layout(STEPS * 20))
    assert max(box.left + box.width for box in boxes) <= part_00.WIDTH - part_00.MARGIN
    for before, after in pairwise(boxes):
        same_line = before.line == after.line
        right = before.left + before.width
        assert after.line - before.line in (0, 1)
        assert not same_line or after.left >= right - 1e-9
        if same_line:  # a gap stands exactly between steps
            assert (after.left > right + 1e-9) == (after.step != before.step)


def test_by_k_draws_accepted_and_wasted_tokens():
    data = {"k": [1, 4], "tau": [1.5, 2.0], "accepted": [9, 12], "drafted": [10, 30]}
    figure = part_00.by_k(data)
    left, right = figure.axes
    assert list(left.lines[0].get_ydata()) == [1.5, 2.0]
    assert [bar.get_height() for bar in right.patches] == [9, 12, 1, 18]


def test_a_letter_split_over_tokens_stands_at_the_last_of_them():
    ids = list("aş".encode())
    found = pieces(SimpleNamespace(tokenizer=Letters()), [step(ids[:2], ids, 2)])
    assert found == [[["a", "accepted"], ["…", "accepted"], ["ş", "bonus"]]]


def test_coloured_text_escapes_html_and_shows_whitespace():
    page = ColouredText(STEPS)._repr_html_()
    assert "·&lt;b&gt;&amp;" in page
    assert "<b>" not in page
    assert ">↵</span>" in page
    for kind in ("accepted", "bonus", "recovered", "plain"):
        assert TOKEN_COLORS[kind] in page
    assert visible(" a\n\tb") == "·a↵→b"


def test_coloured_text_can_be_read_without_colours():
    bare = re.sub(r' style="[^"]*"', "", ColouredText(STEPS)._repr_html_())
    assert bare.count("<sup>✓</sup>") == 2 + 1  # and once in the legend
    assert bare.count("</sup> | <") == 2
    plain = repr(ColouredText(STEPS)).splitlines()[-1]
    assert plain == "·one✓ ·two✓ $_{x}$+ | ↵↻ | ·<b>&○"


@pytest.fixture
def alone(monkeypatch):
    """No other program is at work, and no quota."""
    monkeypatch.setattr(self_check.threads, "held_by_others", lambda: 0.1)
    monkeypatch.setattr(self_check.threads, "cpu_quota", lambda: None)


def problems():
    """What the self-check finds wrong with the environment."""
    return [finding.text for finding in self_check.environment() if not finding.ok]


def test_the_environment_of_the_tests_is_in_order(alone):
    findings = self_check.environment()
    assert [str(finding) for finding in findings if not finding.ok] == []
    assert len(findings) == 2 + len(self_check.NEEDED)


@pytest.mark.parametrize(
    ("version", "ok"),
    [("2.6.0", True), ("2.13.0+cpu", True), ("2.5.1", False), ("2.14.0", False), ("2.14", False)],
)
def test_39_versions_are_compared_as_numbers(version, ok, alone, monkeypatch):
    monkeypatch.setattr(self_check.metadata, "version", lambda name: version)
    finding = next(f for f in self_check.environment() if f.text.startswith("torch "))
    assert finding.ok is ok
    assert ok or "make lab" in finding.text


def test_39_a_missing_package_is_named_with_what_to_do(alone, monkeypatch):
    def missing(name):
        raise self_check.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(self_check.metadata, "version", missing)
    texts = [str(finding) for finding in self_check.environment() if not finding.ok]
    assert len(texts) == len(self_check.NEEDED)
    assert all(text.startswith("LOOK  ") and "make lab" in text for text in texts)


@pytest.mark.parametrize("value", ["abc", "0", "-3"])
def test_a_setting_that_says_nothing_is_one_sentence(value, alone, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    (text,) = problems()
    assert text.startswith(f"OMP_NUM_THREADS={value} says nothing")
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "nonsense")
    monkeypatch.setenv("GOMP_SPINCOUNT", "3000")
    (text,) = problems()
    assert text.startswith("OMP_WAIT_POLICY=nonsense says nothing")


def test_torch_before_the_package_is_one_sentence(alone, monkeypatch):
    for name in self_check.threads.WAIT:
        monkeypatch.delenv(name, raising=False)
    (text,) = problems()
    assert "restart the kernel and import specdec_lab first" in text
    monkeypatch.setenv("KMP_BLOCKTIME", "200")
    assert problems() == []


@pytest.mark.parametrize(
    ("number", "quota", "advice"), [(2, 0.5, 1), (1, 0.5, None), (4, 3.9, 3), (2, 2.0, None)]
)
def test_more_threads_than_the_container_may_use_is_one_sentence(
    number, quota, advice, alone, monkeypatch
):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: number)
    monkeypatch.setattr(self_check.threads, "cpu_quota", lambda: quota)
    found = problems()
    assert len(found) == (advice is not None)
    assert advice is None or f"set OMP_NUM_THREADS={advice}" in found[0]


def test_other_programs_are_one_sentence(alone, monkeypatch):
    monkeypatch.setattr(self_check.threads, "held_by_others", lambda: 1.94)
    (text,) = problems()
    assert text.startswith("other programs keep 1.9 cores busy")


@pytest.mark.parametrize("same", [True, False])
def test_the_model_s_finding_says_whether_rows_agree(same, monkeypatch):
    import torch

    from specdec_lab.decoding import target

    monkeypatch.setattr(target, "probe_rows", lambda *args, **options: {"5 nodes": same})
    monkeypatch.setattr(target, "probe_threads", lambda *args: not same)
    small = SimpleNamespace(name="toy", num_layers=2, vocab_size=50, dtype=torch.float32)
    small.device = "cpu"
    shape, rows, one = self_check.model(small)
    assert shape.ok
    assert "2 layers" in shape.text
    assert rows.ok is same
    assert same or "5 nodes" in rows.text
    assert one.ok is not same


def test_exercise_1_knows_three_numbers():
    assert exercises.check_metrics(2.5, 0.72, 0.45).startswith("Right")
    assert "None" in exercises.check_metrics(None, 0.72, 0.45)
    for wrong, word in (((1.5, 0.72, 0.45), "tau"), ((2.5, 0.45, 0.45), "alpha")):
        assert exercises.check_metrics(*wrong).startswith(f"Not yet: {word}")
    assert "draft_acceptance_rate" in exercises.check_metrics(2.5, 0.72, 0.72)


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (lambda k: k + 1, "Right"),
        (lambda k: None, "Not yet: return a number"),
        (lambda k: k, "Not yet: for k = 0 there is one token more"),
        (lambda k: 2 * k + 1, "Not yet: for k = 1 the most is not 3"),
    ],
)
def test_exercise_2_knows_the_bonus_token(answer, reply):
    assert exercises.check_most_tokens(answer).startswith(reply)


def test_exercise_3_agrees_with_the_records():
    def from_records(num_drafted, num_accepted):
        tokens = range(num_accepted + 1)
        return step(range(num_drafted), tokens, num_accepted).kinds[-1]

    assert exercises.check_last_kind(from_records).startswith("Right")
    assert exercises.check_last_kind(lambda d, a: None).startswith("Not yet: return")
    assert "0 drafted" in exercises.check_last_kind(lambda d, a: "bonus" if a == d else "recovered")


def test_exercise_4_wants_a_high_tau_and_no_loop():
    good = run(*(step(range(i, i + 4), range(i, i + 5), 4) for i in range(0, 40, 5)))
    assert exercises.check_own_prompt(good) == "Right: tau = 5.00."
    loop = run(*(step([1, 2, 3, 4], [1, 2, 3, 4, 5], 4) for _ in range(8)))
    assert "circles" in exercises.check_own_prompt(loop)
    slow = run(*(step([], [i], 0) for i in range(20)))
    assert "tau = 1.00" in exercises.check_own_prompt(slow)
    assert "only 5 tokens" in exercises.check_own_prompt(run(step(range(4), range(5), 4)))
    assert exercises.check_own_prompt(None).startswith("Not yet")
