"""Figures of the measurements: one machine or several.

pytest tests/study/test_figures_measured.py
"""

import matplotlib
import pytest

from specdec_lab.decoding.records import RowStep
from specdec_lab.decoding.trace import Trace
from specdec_lab.study import recordings
from specdec_lab.study.figures import redraw_all
from specdec_lab.study.figures.measured import MEASURED, show_measured
from specdec_lab.study.figures.measured.looks import look
from specdec_lab.study.figures.measured.methods import best_cells
from specdec_lab.study.figures.style import METHODS, render
from specdec_lab.study.measure import batch, cost, decode, outside, peers
from specdec_lab.study.measure.sweep import packed
from specdec_lab.study.measurements import FOLDER

INT8 = {"method": "draft_model", "model": "int8"}


def trace(tokens_per_step, seconds):
    """What a cell keeps of a row of eight tokens."""
    num_steps, tokens = 8 // tokens_per_step, [0] * tokens_per_step
    ends = [seconds * (number + 1) / num_steps for number in range(num_steps)]
    steps = [RowStep([0] * 4, tokens, len(tokens) - 1, end) for end in ends]
    spent = {"prefill": 0.0, "score": 0.8 * seconds, "propose": 0.2 * seconds}
    return packed(Trace([steps], spent, num_steps))


def decoded(speed):
    """What `measure decode` records: plain, n-gram twice, and a twin that is ``speed`` as fast."""
    cells = [("plain", "none", 0), ("ngram", "ngram", 2), ("ngram", "ngram", 4)]
    cells.append(("draft_model int8", INT8, 4))
    times = {"plain, k = 0": 4.0, "ngram, k = 2": 3.0, "ngram, k = 4": 2.0}
    times = {"plain": 4.0} | times | {"draft_model int8, k = 4": 4.0 / speed}
    words = ("label", "config", "k")
    settings = {
        "domains": ["chat", "json"],
        "cells": [dict(zip(words, cell, strict=True)) for cell in cells],
        "prompts": 2,
        "max_new_tokens": 30,
        "rounds": 1,
    }
    results = {"cards": {name: {} for name in times}, "missing": {}}
    for domain in settings["domains"]:
        for prompt in ("one", "two"):
            reports = {
                name: {"trace": trace(1 + (name != "plain"), s), "rep4": 0.0, "text": "equal"}
                for name, s in times.items()
            }
            run = {"domain": domain, "prompt": prompt, "round": 0, "reports": reports}
            results[f"{domain}, {prompt}"] = run
    return decode.summary(settings, results)


def batched(speed):
    """What `measure batch` records: n-gram is ``speed`` as fast alone, and slower in a batch."""
    settings = {"batches": [1, 4], "ks": [2, 4], "methods": {"ngram": "ngram"}}
    results = {}
    for size, factor in ((1, speed), (4, 0.5)):
        ways = {batch.PLAIN: [trace(1, 1.0)]}
        ways |= {f"ngram, k = {k}": [trace(1, 1.0 / factor)] for k in (2, 4)}
        results[str(size)] = {"batch": size, "round": 0, "ways": ways}
    return batch.summary(settings, results)


def profiled(speed):
    """What `measure cost` records: a forward of three parts, and drafting on top."""
    parts = {"products": 0.02, "head": 0.005, "rest": 0.015, "verify": 0.0, "host": 0.0}
    parts = {part: seconds / speed for part, seconds in parts.items()}
    steps = {"plain": parts | {"propose": 0.0}, "k = 4": parts | {"propose": 0.03}}
    steps = {name: step | {"step": sum(step.values())} for name, step in steps.items()}
    found = {"weight_bytes": 5e8, "read_seconds": 0.016, "steps": steps}
    return cost.summary({}, {"rows": {}, "overhead": {}, "profile": found})


RACE = {"domains": ["chat", "code"], "rounds": 2, "k": 4, "draft": "d", "max_new_tokens": 30}


def raced(speed):
    """What `measure peers` records: ours is ``speed`` times as fast, and a program is new."""
    seconds = {"transformers": 3.0, "ours": 3.0 / speed, "ours_ngram": 1.0, "new_program": 2.0}
    return peers.summary(RACE, heats(seconds))


def raced_outside(speed):
    """What `measure outside` records: proposals of ours and of somebody unknown."""
    spread = {"median": 900.0 / speed, "low": 800.0, "high": 1000.0, "first": 1.0}
    entry = {"proposals": {"ours": spread, "new": spread}, "versions": {}, "missing": {}}
    sizes = {f"history {size}": entry for size in (1000, 10_000)}
    settings = RACE | {"history": [1000, 10_000]}
    return outside.summary(settings, heats({"ours": 1.0, "ours_suffix": 1.0 / speed}) | sizes)


def heats(seconds):
    """The cells of a race in which every program writes 30 tokens; the second round is slower."""
    results = {}
    for domain in RACE["domains"]:
        for number, load in ((1, 1.0), (2, 2.0)):
            results[f"{domain} {number}"] = {
                "seconds": {arm: load * value for arm, value in seconds.items()},
                "tokens": {arm: [[1] * 30] for arm in seconds},
                "forwards": dict.fromkeys(seconds, 30),
            }
    return results


MAKE = {
    "decode": decoded,
    "batch": batched,
    "cost": profiled,
    "peers": raced,
    "outside": raced_outside,
}


def recording(part, speed=1.5):
    """The recording as it is read from its file."""
    return recordings.rounded(MAKE[part](speed))


def texts(figure):
    """All words of a figure."""
    return [t.get_text() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Measurements are read from, and figures written to, a folder of the test."""
    monkeypatch.setattr(recordings, "PROJECT", tmp_path)
    monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("slug", [slug for slug in MEASURED if MEASURED[slug].every_machine])
def test_one_machine_and_two_are_drawn_and_named(slug):
    figure, one = MEASURED[slug], {"here": recording(MEASURED[slug].part)}
    two = one | {"there": recording(MEASURED[slug].part, 3.0)}
    for data in (one, two):
        drawn = figure.draw(data)
        assert {name for name in two if any(name in text for text in texts(drawn))} == set(data)
        assert figure.describe(data)
    assert render(drawn, "png", 40).startswith(b"\x89PNG")  # one machine is a stored figure
    assert "here" in figure.describe(two)


def test_methods_stand_with_their_best_k_and_their_numbers():
    recorded = recording("decode")
    best = best_cells(recorded, ("ngram", "suffix", "draft_model int8"))
    assert list(best) == ["ngram, k = 4", "draft_model int8, k = 4"]
    words = texts(MEASURED["08_methods"].draw({"here": recorded}))
    assert {"n-gram, k = 4", "int8 twin, k = 4", "JSON\nrep4 0.00"} <= set(words)
    assert words.count("1.50") == 2  # the twin's speed-up in two domains
    assert words.count("2.00") == 4 + 2  # tau of both methods, and n-gram's speed-up
    assert "chat 1.50" in MEASURED["08_methods"].describe({"here": recorded})


@pytest.mark.parametrize("slug", ["08_methods", "13_all_methods"])
def test_a_speed_up_above_tau_is_refused_and_wins_nothing(slug):
    disturbed = {"here": recording("decode", 3.0)}  # the twin, with two tokens a forward
    words = texts(MEASURED[slug].draw(disturbed))
    assert words.count("refused") == 2  # in both domains
    assert not any(word.startswith("3.00") for word in words)
    described = MEASURED[slug].describe(disturbed)
    assert described.count("refused (above tau)") == 2
    assert "2 prompts a kind of text, answers of at most 30 tokens, 1 round" in described
    if slug == "13_all_methods":
        assert "Fastest: n-gram on chat and JSON" in words


def test_drafts_in_a_batch_are_compared_with_the_same_batch():
    draw = MEASURED["04_batches"].draw
    assert "The more requests" in draw({"here": recording("batch")}).get_suptitle()
    assert "The more requests" not in draw({"here": recording("batch", 0.4)}).get_suptitle()
    speedup, throughput, _ = draw({"here": recording("batch")}).axes
    assert list(speedup.lines[0].get_ydata()) == [1.5, 0.5]
    assert throughput.lines[0].get_label() == METHODS["none"].label


def test_a_step_is_its_parts_beside_the_reading_of_its_weights():
    (axes,) = MEASURED["01_profile"].draw({"here": recording("cost", 1.0)}).axes
    ends = [
        max(bar.get_x() + bar.get_width() for bar in axes.patches if bar.get_y() < y)
        for y in (0, 1)
    ]
    assert ends == pytest.approx([40, 70])  # milliseconds
    assert axes.lines[0].get_xdata()[0] == pytest.approx(16)
    words = texts(MEASURED["01_profile"].draw({"here": recording("cost", 1.0)}))
    assert {"20.0", "5.0", "15.0", "30.0", "reading 500 MB of weights"} <= set(words)
    assert "A plain step takes 2.50 times as long as reading its weights" in words


def test_programs_stand_with_the_spread_of_their_rounds():
    figure = MEASURED["08_peers"].draw({"here": recording("peers")})
    chat, _ = figure.axes
    names = [label.get_text() for label in chat.get_yticklabels()]
    assert names == ["transformers, plain", "ours, plain", "ours, n-gram", "new program"]
    spans = [tuple(line.get_segments()[0][:, 0]) for line in chat.collections]
    assert spans[0] == pytest.approx((5, 10))
    assert [bar.get_width() for bar in chat.patches] == pytest.approx([7.5, 11.25, 22.5, 11.25])
    full = [bar.get_facecolor() == bar.get_edgecolor() for bar in chat.patches]
    assert full == [False, True, True, False]  # ours are full, others pale


def test_implementations_stand_with_their_spread():
    (axes,) = MEASURED["06_implementations"].draw({"here": recording("outside", 1.0)}).axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[900, 900], [900, 900]]
    assert axes.collections[0].get_segments()[0][:, 1].tolist() == [800, 1000]
    words = texts(MEASURED["06_implementations"].draw({"here": recording("outside")}))
    assert {"ours", "new", "1,000", "10,000"} <= set(words)


def test_recordings_without_what_is_drawn_are_left_out(elsewhere):
    recordings.save("cost", recording("cost"), folder=f"{FOLDER}/new")
    recordings.save("cost", {"cost": {"1": 1.0}}, folder=f"{FOLDER}/old")
    assert list(MEASURED["01_profile"].data()) == ["new"]


def test_twins_are_told_apart_and_share_their_marker():
    one, other = look("a", INT8), look("b", INT8 | {"model": "int4"})
    assert one.color != other.color
    assert one.marker == other.marker == METHODS["draft_model"].marker
    chain, tree = look("a", "mlp_speculator"), look("b", {"method": "mlp_speculator", "tree": True})
    assert (chain.label, tree.label) == ("MLP speculator", "MLP speculator, tree")
    assert look("ngram", "ngram") is METHODS["ngram"]
    assert look("mine", "my_package.Mine").label == "mine"


def test_the_figures_command_draws_all_machines_and_names_what_is_missing(elsewhere, monkeypatch):
    monkeypatch.setattr("specdec_lab.study.figures.FIGURES", {})
    for machine, speed in (("ours", 1.5), ("yours", 3.0)):
        recordings.save("batch", recording("batch", speed), folder=f"{FOLDER}/{machine}")
    said = []
    assert redraw_all(said.append) == ["04_batches"]
    assert "04_batches: drawn from ours, yours." in said
    assert "01_profile: not measured yet; run python -m specdec_lab measure cost." in said
    assert "08_methods: not measured yet; run python -m specdec_lab measure decode." in said
    drawn = sorted(path.name for path in (elsewhere / "figures").iterdir())
    assert drawn == ["04_batches.png", "04_batches.svg"]
    both = {name: recording("batch", speed) for name, speed in (("ours", 1.5), ("yours", 3.0))}
    expected = render(MEASURED["04_batches"].draw(both), "svg")
    assert (elsewhere / "figures/04_batches.svg").read_bytes() == expected


def test_a_figure_of_what_was_never_measured_says_what_to_run(elsewhere):
    with pytest.raises(OSError, match="python -m specdec_lab measure decode"):
        show_measured("08_methods")
    assert not (elsewhere / "figures").exists()
