"""The committed corpus: within its budget, as its statistics say, and buildable again."""

import json
from itertools import pairwise

import pytest

from specdec_lab.__main__ import main
from specdec_lab.training.corpus import FOLDER, load_corpus, load_labelled
from specdec_lab.training.export import BUDGET
from specdec_lab.training.mix import evaluation_guard
from specdec_lab.training.shards import num_tokens, read_folder
from specdec_lab.training.sources import SOURCES, documents

FILES = sorted(FOLDER.glob("*.npz"))


@pytest.fixture(scope="module")
def shards():
    return read_folder(FOLDER)


def test_the_files_are_within_the_budget():
    assert FILES
    assert sum(path.stat().st_size for path in FILES) <= BUDGET


def test_every_file_reaches_its_milestone(shards):
    have = 0
    for path, shard in zip(FILES, shards, strict=True):
        have += num_tokens(shard.entries)
        assert 0 <= have - int(path.stem) < 200
        assert json.loads(path.with_suffix(".json").read_text())["tokens"] == have


def test_milestones_share_no_prompt(shards):
    keys = [{entry.recipe.key for entry in shard.entries} for shard in shards]
    assert all(not one & other for one, other in pairwise(keys))


def test_no_loop_and_no_unknown_source_was_committed(shards):
    for entry in (entry for shard in shards for entry in shard.entries):
        assert not entry.is_loop
        parts = entry.recipe.message + entry.recipe.prefix
        assert all(isinstance(part, str) or part.source in SOURCES for part in parts)


def test_export_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path))
    assert main(["train", "corpus", "--export", "--tokens", "1000000000"]) == 2
    assert "generate more first" in capsys.readouterr().err


@pytest.mark.model
def test_every_prompt_can_be_built_again_and_none_is_measured(default_model, shards):
    target, guard = default_model, evaluation_guard()
    texts = load_corpus("train", target) + load_corpus("heldout", target)
    assert sum(len(text.answer) for text in texts) == sum(num_tokens(s.entries) for s in shards)
    for entry in (entry for shard in shards for entry in shard.entries):
        assert guard.admits(*entry.recipe.render(documents))


@pytest.mark.model
def test_human_text_comes_from_the_fetched_sources(default_model):
    texts = load_labelled(5000, "train", default_model)
    assert sum(len(text.answer) for text in texts) >= 5000
    assert len({text.domain for text in texts}) > 2
