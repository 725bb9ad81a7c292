"""Sweeps over cells: the file, the runs, the numbers made of them, and compare. No clock is tested.

pytest tests/study/test_measure_decode.py
"""

import json

import numpy as np
import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study.measure import cells as listed
from specdec_lab.study.measure import decode
from specdec_lab.study.measure.cells import Cell, check_config, read_plan, with_baselines
from specdec_lab.study.measure.compare import chosen_cells, chosen_prompts
from specdec_lab.study.measure.summary import (
    Run,
    best_by_domain,
    explained,
    interval,
    overview,
    refused,
    same_text,
    summarise,
    without_prompt,
)
from specdec_lab.study.measure.sweep import CARD, Sweep, packed, unpacked
from toys import random_target

LOOPS = [[1, 2, 3, 1, 2, 3, 1], [4, 5, 4, 5]]


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


@pytest.fixture
def plan(tmp_path):
    """Writes a file of cells: a good one with some words replaced."""

    def write(**changes):
        good = {"domains": ["chat"], "prompts": 1, "max_new_tokens": 8, "rounds": 3}
        good["cells"] = [{"method": "ngram", "k": [2, 4]}]
        path = tmp_path / "cells.json"
        path.write_text(json.dumps(good | changes))
        return path

    return write


def test_the_file_of_the_project_is_sound():
    plan = read_plan()
    assert plan.cells[0] == Cell("plain", "none", 0)
    assert len(plan.cells) <= listed.MOST_CELLS
    assert {"ngram", "suffix"} <= {cell.label for cell in plan.cells}


def test_a_line_makes_a_cell_for_each_k_and_a_baseline_for_each_temperature(plan):
    lines = [{"method": "ngram", "k": [2, 4]}, {"method": "suffix", "k": 4, "temperature": 1}]
    names = [cell.name for cell in read_plan(plan(cells=lines)).cells]
    assert names == [
        "plain",
        "plain, T = 1",
        "ngram, k = 2",
        "ngram, k = 4",
        "suffix, k = 4, T = 1",
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"cells": [{"method": "ngrm", "k": 4}]}, "no method 'ngrm', did you mean 'ngram'"),
        ({"cells": [{"method": {"method": "ngram", "width": 3}, "k": 4}]}, "its options are"),
        ({"cells": [{"method": "ngram", "k": 4.5}]}, "k of ngram must be a whole number"),
        ({"cells": [{"method": "ngram", "k": 1000}]}, "from 0 to 64"),
        ({"cells": [{"method": "ngram"}]}, "'k' is missing"),
        ({"cells": [{"method": "ngram", "k": 4, "top": 1}]}, "no option 'top'"),
        ({"cells": [{"method": "ngram", "k": 4, "verify": "trust"}]}, "verify"),
        ({"cells": [{"method": "ngram", "k": 4, "temperature": -1}]}, "temperature"),
        ({"cells": [{"method": "ngram", "k": 4}] * 2}, '"ngram, k = 4"'),
        ({"cells": []}, "'cells' must be a list"),
        ({"cells": [{"method": "ngram", "k": list(range(1, 41))}]}, "at most 40 cells, not 41"),
        ({"domains": ["poetry"]}, "no prompts for 'poetry'"),
        ({"prompts": 0}, "prompts must be a whole number, 1 or more"),
        ({"rounds": 2}, "rounds must be a whole number, 3 or more"),
        ({"speed": 1}, "no option 'speed'"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(plan, changes, complaint):
    path = plan(**changes)
    with pytest.raises(ValueError, match=r"cells\.json: ") as refusal:
        read_plan(path)
    assert complaint in str(refusal.value)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_plan(tmp_path / "cells.json")
    (tmp_path / "cells.json").write_text("{")
    with pytest.raises(ValueError, match=r"cells\.json"):
        read_plan(tmp_path / "cells.json")


def test_a_config_is_checked_without_a_model():
    check_config({"method": "draft_model", "model": "int4"})
    with pytest.raises(ValueError, match="its options are"):
        check_config({"method": "draft_model", "size": 4})


def swept(target, cells, budget=24):
    sweep = Sweep(target, with_baselines(cells), budget)
    return sweep, [Run("loops", str(i), 0, sweep.run(ids)) for i, ids in enumerate(LOOPS)]


def test_a_cell_reports_what_generate_does(target):
    cell = Cell("ngram", "ngram", 3)
    sweep, runs = swept(target, [cell])
    found = summarise(sweep.cells, runs)[cell.name]["scopes"]["all"]
    expected = generate(target, [LOOPS[0]], NGram(), k=3, max_new_tokens=24).trace
    other = generate(target, [LOOPS[1]], NGram(), k=3, max_new_tokens=24).trace
    assert found["num_tokens"] == 48
    assert found["num_forwards"] == expected.num_forwards + other.num_forwards
    assert found["tau"] == pytest.approx(48 / found["num_forwards"])
    assert found["same_text"] == {"equal": 2}
    assert set(found["step_seconds"]) == {"propose", "score", "verify", "other"}
    plain = summarise(sweep.cells, runs)["plain"]["scopes"]["all"]
    assert (plain["tau"], plain["speedup"], plain["speedup_interval"]) == (1, 1, [1, 1])


def test_a_trace_survives_json(target):
    trace = generate(target, LOOPS, NGram(), k=3, max_new_tokens=12).trace
    assert unpacked(json.loads(json.dumps(packed(trace)))) == trace


def test_a_draft_that_changes_the_text_is_called_a_bug(target):
    cell = Cell("ngram", "ngram", 2)
    sweep = Sweep(target, with_baselines([cell]), 8)
    done = {c.name: sweep._decode(c, LOOPS[0], 8) for c in sweep.cells}
    done[cell.name].tokens[0][3] += 1
    assert sweep._report(cell, LOOPS[0], done)["text"] == "bug"


def test_sampled_text_equals_plain_where_the_draft_is_one_hot(target):
    _, (run, _) = swept(target, [Cell("ngram", "ngram", 2, temperature=1.0)])
    assert run.reports["ngram, k = 2, T = 1"]["text"] == "equal"


def test_k_is_the_proposers_own_unless_named_and_never_more_than_it_can(target, monkeypatch):
    assert Sweep(target, [Cell("suffix", "suffix")], 8).cells[0].k == 8
    monkeypatch.setattr(NGram, "max_k", 3)
    with pytest.raises(ValueError, match="k of ngram must be a whole number, from 0 to 3"):
        Sweep(target, [Cell("ngram", "ngram", 4)], 8)


def report(tokens, seconds, rep4=0.0, steps=2):
    """What a sweep would report of a request: all tokens but one a step come with the last."""
    step = {"drafted": [], "num_accepted": 0, "at": seconds}
    last = step | {"tokens": [0] * (tokens - steps + 1)}
    rows = [[*[step | {"tokens": [0]}] * (steps - 1), last]]
    trace = {"rows": rows, "seconds": {"score": seconds}, "num_forwards": steps}
    return {"trace": trace, "rep4": rep4, "text": "equal"}


def test_speedups_are_ratios_within_a_round_and_medians_over_rounds():
    cell = Cell("fast", "ngram", 2)
    times = [(2.0, 1.0), (8.0, 2.0), (3.0, 1.0)]  # plain, fast: 2, 4 and 3 times as fast
    runs = [
        Run("chat", "a", number, {"plain": report(10, slow), cell.name: report(10, fast)})
        for number, (slow, fast) in enumerate(times)
    ]
    found = summarise([cell.baseline, cell], runs)[cell.name]["scopes"]["chat"]
    assert found["speedup"] == 3
    assert found["speedup_rounds"] == [2, 4]
    assert found["speedup_interval"] is None  # one prompt says nothing of others
    assert found["tokens_per_second"] == 10


def scope(tau, *rounds):
    seconds = {"score": 0.1}
    spread = {"speedup": sorted(rounds)[1], "speedup_rounds": [min(rounds), max(rounds)]}
    return spread | {"tau": tau, "step_seconds": seconds}


def test_without_the_prompt_the_speedup_is_tau_over_the_price_of_a_step():
    plain, twin = ({"scopes": {"all": scope(tau, 1, 1, 1)}} for tau in (1, 3))
    twin["scopes"]["all"]["step_seconds"] = {"propose": 0.1, "score": 0.1}
    assert without_prompt(twin, plain, "all") == pytest.approx(1.5)


def test_a_speedup_above_tau_by_more_than_its_spread_is_refused():
    assert refused(scope(3.43, 3.6, 3.73, 3.8))
    assert not refused(scope(3.43, 3.3, 3.73, 3.8))  # a round was slower: noise
    assert not refused(scope(1.0, 1.005, 1.01, 1.02))  # within the error of any clock


def test_a_refused_speedup_stands_in_no_table():
    cell = Cell("fast", "ngram", 2)
    times = [(2.0, 0.9), (4.0, 1.8), (2.0, 0.9)]  # 2.2 times as fast, with tau 2
    runs = [
        Run("chat", "a", number, {"plain": slow, cell.name: report(4, fast)})
        for number, (slow, fast) in enumerate((report(4, s, steps=4), f) for s, f in times)
    ]
    found = summarise([cell.baseline, cell], runs)
    assert "refused" in overview(found).splitlines()[-1]
    assert "refused: above tau" in explained(found)
    assert best_by_domain(found).splitlines()[-1].endswith("refused")


def test_a_proposer_that_remembers_the_answers_is_refused():
    cell = Cell("own", "ngram", 2)
    runs = [
        Run("chat", "a", n, {"plain": report(10, 2.0), cell.name: report(10, 1.0, steps=5 - n)})
        for n in range(3)
    ]
    with pytest.raises(ValueError, match="own, k = 2 took other steps in a later round"):
        summarise([cell.baseline, cell], runs)


def test_texts_that_loop_have_a_scope_without_them():
    cell = Cell("fast", "ngram", 2)
    runs = [
        Run("chat", name, 0, {"plain": report(10, 2.0, rep4), cell.name: report(10, fast, rep4)})
        for name, fast, rep4 in (("straight", 1.0, 0.1), ("circle", 0.5, 0.6))
    ]
    found = summarise([cell.baseline, cell], runs)[cell.name]
    assert found["scopes"]["without_loops"]["speedup"] == 2
    assert found["scopes"]["all"]["speedup"] == pytest.approx(4 / 1.5)
    assert [p["speedup"] for p in found["prompts"]] == [2, 4]


def test_the_interval_of_a_known_case():
    values = np.array([1.0, 3.0])
    assert interval(2, lambda pick: values[pick].mean(1)) == [1, 3]  # each has a chance of 1/4
    many = np.repeat(values, 200)  # mean 2, standard error 1 / 20
    low, high = interval(400, lambda pick: many[pick].mean(1))
    assert low == pytest.approx(2 - 1.96 / 20, abs=0.01)
    assert high == pytest.approx(2 + 1.96 / 20, abs=0.01)
    assert interval(1, lambda pick: pick.mean(1)) is None


def test_the_part_decodes_every_prompt_in_every_round(target, plan, monkeypatch):
    monkeypatch.setattr(NGram, "card", {"parameters": 1234}, raising=False)
    settings = decode.settings(False, plan(rounds=3))
    monkeypatch.setattr("specdec_lab.prompts.Prompt.ids", lambda prompt, target: LOOPS[0])
    works = decode.cells(target, settings)
    assert len(works) == 2 + 3  # the cards and what is missing, and one prompt three times
    results = json.loads(json.dumps({name: work() for name, work in works.items()}))
    data = decode.summary(settings, results)
    assert set(data["cells"]) == {"plain", "ngram, k = 2", "ngram, k = 4"}
    cell = data["cells"]["ngram, k = 4"]
    assert cell["scopes"]["chat"]["same_text"] == {"equal": 1}
    assert list(cell["card"]) == list(CARD)
    lines = decode.table(data).splitlines()
    assert lines[0].split()[:3] == ["method", "k", "T"]
    assert "1234" in decode.table(data)
    assert any(line.startswith("best k  chat") for line in lines)
    assert "4-grams" in lines[-1]


def test_a_method_without_weights_is_a_line_and_stops_nothing(target, plan, monkeypatch, tmp_path):
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    monkeypatch.setattr("specdec_lab.prompts.Prompt.ids", lambda prompt, target: LOOPS[0])
    lines = [{"method": "pard", "k": [2, 4]}, {"method": "ngram", "k": 2}]
    settings = decode.settings(False, plan(cells=lines))
    works = decode.cells(target, settings)
    data = decode.summary(settings, {name: work() for name, work in works.items()})
    assert list(data["cells"]) == ["plain", "ngram, k = 2"]
    assert list(data["missing"]) == ["pard"]
    lines = [line for line in decode.table(data).splitlines() if line.startswith("pard: ")]
    assert len(lines) == 1
    assert "no trained weights for pard" in lines[0]


def test_what_was_measured_with_other_weights_is_not_gone_on_with(plan, monkeypatch, tmp_path):
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    seen = []
    for content in (b"one", b"two", b"two"):
        (tmp_path / "mtp.safetensors").write_bytes(content)
        seen.append(decode.settings(False, plan())["weights"]["mtp"])
    assert seen[0] != seen[1] == seen[2]


def test_same_text_in_words():
    assert same_text({"equal": 3}) == "3 of 3"
    assert same_text({"equal": 2, "tie": 1}) == "2 of 3, 1 tie"
    assert same_text({"equal": 1, "other draws": 2}) == "same law"


def test_compare_names_what_does_not_exist():
    with pytest.raises(ValueError, match="no method 'ngrm'"):
        chosen_cells(["ngrm"])
    with pytest.raises(ValueError, match="no prompts for 'poetry'"):
        chosen_prompts(domain="poetry")
    names = [cell.label for cell in chosen_cells()]
    assert names[0] == "plain"
    assert len(names) == len(set(names))


def test_an_overview_shows_domains_only_where_there_are_several(target):
    sweep, runs = swept(target, [Cell("ngram", "ngram", 2)])
    assert "loops" not in overview(summarise(sweep.cells, runs)).splitlines()[0]
    runs[1] = Run("circles", "1", 0, runs[1].reports)
    assert "circles" in overview(summarise(sweep.cells, runs)).splitlines()[0]
