"""Making the corpus: whatever stops it, going on gives what an undisturbed run gives."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from filelock import FileLock

from specdec_lab.training import generate, half_products, mix
from specdec_lab.training.corpus import labelled_passages, load_corpus, load_labelled
from specdec_lab.training.export import export
from specdec_lab.training.generate import Plan, make_corpus
from specdec_lab.training.half_products import half_copy, half_works
from specdec_lab.training.recipes import split_of
from specdec_lab.training.shards import Shard, num_tokens, read_folder, write_shard
from specdec_lab.training.states import TargetStates
from toys import random_target
from training_texts import quiet

PLAN = Plan(num_tokens=600, num_rows=8, max_new_tokens=12, products="float32", seconds=0.05)
WORDS = {  # a document of each split in every source
    "wiki": {f"w{i}": "alpha beta gamma. " * 40 for i in range(40)},
    "networkx": {f"n{i}": "x = 1\ny = 2\n" * 80 for i in range(40)},
    "boltons": {f"b{i}": "z = 3\n" * 9 for i in range(40)},
    "more_itertools": {"m0": "short"},
    "speeches": {f"s{i}": "bir iki. " * 50 for i in range(40)},
}


def texts(source):
    return WORDS[source]


def make(target, plan, folder, report=quiet, committed=None):
    """Generate into a folder; nothing is committed unless a folder is named."""
    return make_corpus(target, plan, folder, committed or folder / "none", texts, report)


@pytest.fixture(scope="module")
def target():
    """A tiny target with letters for tokens."""
    target = random_target(vocab_size=64, eos_ids=(3,), dtype=torch.float32, max_context=512)
    target.encode = lambda text: [ord(c) % 60 + 4 for c in text]
    target.encode_chat = lambda text, prefix="": target.encode((text + prefix)[-40:])
    return target


@pytest.fixture(autouse=True)
def own_prompts_only(monkeypatch):
    """No fetched source takes part."""
    monkeypatch.setattr(mix, "FETCHED", ())


@pytest.fixture(scope="module")
def corpus(target, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mix, "FETCHED", ())
        return make(target, PLAN, tmp_path_factory.mktemp("whole"))


def entries(folder):
    return [entry for shard in read_folder(folder) for entry in shard.entries]


def answers(folder):
    return {entry.recipe.key: (entry.temperature, entry.tokens) for entry in entries(folder)}


def test_it_stops_when_there_is_enough(corpus):
    usable = [entry for entry in entries(corpus) if not entry.is_loop]
    assert num_tokens(usable) >= 600


def test_shards_are_cut_by_time_and_say_how_they_were_made(corpus):
    shards = read_folder(corpus)
    assert len(shards) > 1
    for shard in shards:
        assert shard.about["products"] == "float32"
        assert shard.about["seconds"] > 0


def test_a_killed_run_goes_on_and_writes_the_same(target, corpus, tmp_path):
    def kill(line):
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            make(target, PLAN, tmp_path, kill)
    assert len(read_folder(tmp_path)) == 2
    make(target, PLAN, tmp_path)
    found, whole = answers(tmp_path), answers(corpus)
    assert len(found) == len(entries(tmp_path))  # nothing was done twice
    common = found.keys() & whole.keys()
    assert len(common) > 30
    assert all(found[key] == whole[key] for key in common)


def test_enough_is_enough(target, corpus):
    lines = []
    make(target, PLAN, corpus, lines.append)
    assert len(lines) == 1
    assert "already" in lines[0]


def test_two_processes_do_not_share_a_folder(target, tmp_path):
    with FileLock(tmp_path / "lock"), pytest.raises(OSError, match="wait for it"):
        make(target, PLAN, tmp_path)


@pytest.mark.parametrize("wrong", [{"products": "float8"}, {"num_rows": 0}, {"num_tokens": 0}])
def test_a_plan_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Plan(**{"num_tokens": 5} | wrong)


def test_long_prompts_are_left_out(target, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "LONGEST_PROMPT", 39)
    monkeypatch.setattr(target, "encode_chat", lambda text, prefix="": [5] * (len(text) % 50 + 1))
    make(target, replace(PLAN, num_tokens=100, num_rows=4), tmp_path)
    assert max(entry.prompt_length for entry in entries(tmp_path)) <= 39


# --- From shards to the committed corpus, and back ------------------------------------------------


@pytest.fixture(scope="module")
def committed(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("committed")
    export(corpus, 300, folder)
    export(corpus, 500, folder)
    return folder


def test_milestones_add_to_each_other(committed):
    first, second = read_folder(committed)
    assert 300 <= num_tokens(first.entries) < 312
    assert 500 <= num_tokens(first.entries + second.entries) < 512
    keys = [entry.recipe.key for entry in first.entries + second.entries]
    assert len(set(keys)) == len(keys)


def test_loops_stay_behind_and_their_keys_are_known(target, corpus, tmp_path):
    first, *others = entries(corpus)[:5]
    loop = replace(first, tokens=[5, 6, 7, 8] * 9)
    (tmp_path / "working").mkdir()
    write_shard(
        tmp_path / "working" / "00000.npz",
        Shard([loop, *others], {"seconds": 1.0, "cpu_seconds": 1.0}),
    )
    export(tmp_path / "working", 10, tmp_path / "committed")
    (kept,) = read_folder(tmp_path / "committed")
    assert kept.about["loops"] == [loop.recipe.key]
    assert loop.recipe.key not in {entry.recipe.key for entry in kept.entries}
    make(target, replace(PLAN, num_tokens=60), tmp_path / "new", committed=tmp_path / "committed")
    assert loop.recipe.key not in {entry.recipe.key for entry in entries(tmp_path / "new")}


def test_an_empty_cache_goes_on_behind_what_is_committed(target, committed, tmp_path):
    make(target, replace(PLAN, num_tokens=540), tmp_path, committed=committed)
    found = entries(tmp_path)
    known = {entry.recipe.key for entry in entries(committed)}
    known |= set(read_folder(committed)[-1].about["loops"])
    assert found
    assert not known & {entry.recipe.key for entry in found}
    assert num_tokens(entries(committed)) < 540
    have = num_tokens([e for e in found if not e.is_loop] + entries(committed))
    assert 540 <= have < 900


def test_a_milestone_needs_enough_tokens(corpus, committed, tmp_path):
    with pytest.raises(ValueError, match="generate more first"):
        export(corpus, 10**6, tmp_path)
    with pytest.raises(ValueError, match="already"):
        export(corpus, 400, committed)


def test_the_corpus_is_read_by_split_with_prompts_built_again(target, committed):
    both = [load_corpus(split, target, committed, texts) for split in ("train", "heldout")]
    assert len(both[0]) > len(both[1]) > 0
    expected = {tuple(entry.tokens) for entry in entries(committed)}
    assert {tuple(text.answer) for part in both for text in part} == expected
    assert all(text.prompt and text.temperature in mix.TEMPERATURES for text in both[0])


def test_a_part_of_the_corpus_may_be_asked_for(target, committed):
    some = load_corpus("train", target, committed, texts, num_tokens=100)
    assert 100 <= sum(len(text.answer) for text in some) < 112


def test_a_prompt_that_comes_out_otherwise_is_refused(target, committed, monkeypatch):
    monkeypatch.setattr(target, "encode_chat", lambda text, prefix="": [5, 6])
    with pytest.raises(ValueError, match="is not the one that was answered"):
        load_corpus("train", target, committed, texts)


def test_wrong_places_are_said(target, committed, tmp_path):
    with pytest.raises(OSError, match="no corpus"):
        load_corpus("train", target, tmp_path)
    with pytest.raises(ValueError, match="no split 'test'"):
        load_corpus("test", target, committed)


# --- Human text -----------------------------------------------------------------------------------


def test_human_text_is_the_same_everywhere_and_of_its_split(target):
    first = load_labelled(4000, "heldout", target, texts)
    assert first == load_labelled(4000, "heldout", target, texts)
    assert 4000 <= sum(len(text.answer) for text in first) < 4256
    assert all(text.prompt == [] and text.temperature is None for text in first)
    assert {text.domain for text in first} > {"human wiki", "human networkx"}


def test_human_text_of_both_splits_shares_no_document():
    for split in ("train", "heldout"):
        for piece in islice(labelled_passages(split, texts), 100):
            assert split_of(f"{piece.source}/{piece.document}") == split
            assert piece.read(texts)


# --- Products in bfloat16 -------------------------------------------------------------------------


def test_bfloat16_products_are_near_the_float32_ones(target):
    half = half_copy(target)
    tokens = torch.arange(4, 40)[None]
    whole_law = target.model.head(target.model(tokens)[0]).softmax(-1)
    half_law = half.model.head(half.model(tokens)[0]).softmax(-1)
    assert half_law.dtype == torch.float32
    assert torch.equal(half_law, whole_law) is not half_works()
    assert (half_law - whole_law).abs().sum(-1).max() < 0.3


def test_a_processor_without_bfloat16_products_writes_in_float32_and_says_so(
    target, tmp_path, monkeypatch
):
    for module in (half_products, generate):
        monkeypatch.setattr(module, "half_works", lambda: False)
    assert half_copy(target) is target
    assert not half_products.half_is_faster.__wrapped__()
    make(target, replace(PLAN, num_tokens=60, products="bfloat16"), tmp_path)
    assert {shard.about["products"] for shard in read_folder(tmp_path)} == {"float32"}


def test_states_seen_on_the_way_are_those_of_a_pass_over_the_text(target, tmp_path):
    layers, folder = (1, target.num_layers), tmp_path / "corpus"
    kept = TargetStates(target, layers, tmp_path / "kept")
    make_corpus(target, PLAN, folder, tmp_path / "none", texts, quiet, states=kept)
    anew = TargetStates(target, layers, tmp_path / "anew")
    shown = load_corpus("train", target, folder, texts)[:5]
    for text in shown:
        ids, start = [*text.prompt, *text.answer], len(text.prompt) - 1
        expected, found = anew.of(ids, start), kept._find(ids, start)
        assert found is not None
        for name in ("probs", *(f"layer_{i}" for i in layers)):
            torch.testing.assert_close(
                kept.of(ids, start)[name], expected[name], atol=4e-3, rtol=2e-3
            )
