"""From texts to weights that `load_proposer` finds: both methods, on a tiny model.

pytest tests/training/test_session.py
"""

import json
from dataclasses import replace

import pytest
import torch

from specdec_lab.__main__ import TRAINED, main
from specdec_lab.decoding.decode import generate
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.short_model import load_short_model
from specdec_lab.proposers.weights import read_weights
from specdec_lab.training import session
from specdec_lab.training.menu import METHODS
from specdec_lab.training.session import Plan, draft_vocab, train
from specdec_lab.training.trainer import Settings
from toys import random_target
from training_texts import Written, quiet

OPTIONS = {"mlp_speculator": {"num_stages": 2, "width": 16}, "draft_model": {"num_layers": 1}}

VOCAB = DraftVocab(range(32), 32)
SLOW = Settings(warmup=100, learning_rate=1e-6)


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


@pytest.fixture(scope="module")
def texts(target):
    prompts = [[i, i + 1] for i in range(1, 9)]
    answers = generate(target, prompts, max_new_tokens=12).tokens
    return [Written(*pair) for pair in zip(prompts, answers, strict=True)]


@pytest.fixture
def plan_for(tmp_path, monkeypatch):
    """A plan that writes nothing outside the test's own folder."""
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(tmp_path / "cache"))
    settings = Settings(steps=8, warmup=2, evaluate_every=4, learning_rate=1e-2)
    return lambda method: Plan(
        method, settings, OPTIONS.get(method, {}), folder=tmp_path / "weights"
    )


@pytest.mark.parametrize("method", METHODS)
def test_weights_curve_and_provenance_are_written(target, texts, plan_for, method):
    path = train(target, texts[2:], texts[:2], VOCAB, plan_for(method), quiet)
    assert path.name == f"{method}.safetensors"
    tensors, about = read_weights(path)
    assert tensors["draft_to_target"].tolist() == list(range(32))
    assert (about["steps"], about["seed"], about["method"]) == ("8", "0", method)
    assert {"target_hash", "data_hash", "final_loss", "command"} <= about.keys()
    assert int(about["places"]) >= int(about["tokens"]) > 0  # every text is read more than once
    assert float(about["minutes"]) >= 0
    record = json.loads(path.with_suffix(".json").read_text())
    assert [entry["step"] for entry in record["curve"]] == [4, 8]


def test_the_weights_are_found_by_the_methods_name(target, texts, plan_for, monkeypatch):
    plan = plan_for("mlp_speculator")
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", plan.folder)
    train(target, texts[2:], texts[:2], VOCAB, plan, quiet)
    drafter = load_proposer("mlp_speculator", target)
    got = generate(target, [[3, 4], [9]], drafter, max_new_tokens=12)
    assert got.tokens == generate(target, [[3, 4], [9]], max_new_tokens=12).tokens


def test_a_short_model_starts_as_the_first_layers_of_the_target(target, texts, plan_for):
    plan = plan_for("draft_model")
    path = train(
        target, texts[2:], texts[:2], VOCAB, replace(plan, settings=Settings(steps=0)), quiet
    )
    short = load_short_model(target, path)
    ids = torch.tensor([[3, 1, 4]])
    _, hidden = target.model(ids, None, (1,))
    expected = target.model.head(target.model.norm(hidden[1]))
    states, _ = short.model(ids)
    torch.testing.assert_close(short.model.head(states), expected, atol=0.3, rtol=0)  # 8 bits
    assert (short.num_layers, len(short.vocab)) == (1, 32)


def test_a_run_that_is_out_of_time_writes_no_weights_and_goes_on(target, texts, plan_for):
    plan, said = plan_for("mlp_speculator"), []
    assert (
        train(target, texts[2:], texts[:2], VOCAB, replace(plan, seconds=-1), said.append) is None
    )
    assert "run the same command to go on" in said[-1]
    assert not plan.folder.exists()
    assert train(target, texts[2:], texts[:2], VOCAB, plan, quiet).is_file()


def test_the_draft_vocabulary_weighs_domains_alike(target):
    texts = [Written([1], [2, 2, 2, 3]), Written([1], [7, 8, 8], "code")]
    assert draft_vocab(target, texts, 2).draft_to_target.tolist() == [2, 8]


def test_an_unknown_method_is_refused(target, texts, plan_for):
    plan = replace(plan_for("draft_model"), method="medusa")
    with pytest.raises(ValueError, match="use mlp_speculator, draft_model"):
        train(target, texts, texts, VOCAB, plan, quiet)


def test_the_command_line_says_what_is_trained(target, texts, tmp_path, monkeypatch):
    seen = {}

    def load_corpus(split, target, folder, num_tokens=None):
        seen[split] = folder, num_tokens
        return texts[:2] if split == "heldout" else texts[2:]

    def load_labelled(num_tokens, split, target):
        seen.setdefault("labelled", []).append((num_tokens, split))
        return texts[:1]

    def keep(target, learned, unseen, vocab, plan):
        seen.update(learned=learned, unseen=unseen, vocab=vocab, plan=plan)

    monkeypatch.setattr(session, "load_target", lambda **how: seen.update(how) or target)
    monkeypatch.setattr(session, "load_corpus", load_corpus)
    monkeypatch.setattr(session, "load_labelled", load_labelled)
    monkeypatch.setattr(session, "train", keep)
    sizes = ("--options", '{"num_stages": 2}', "--vocab-size", "16", "--labelled", "500")
    how = ("--steps", "7", "--loss", "acceptance", "--seed", "3", "--every", "4", "--no-half")
    places = ("--folder", str(tmp_path), "--corpus", str(tmp_path / "shards"), "--tokens", "90")
    more = ("--learn-prompts", "--minutes", "2")
    assert main(["train", "mlp_speculator", *sizes, *how, *places, *more]) == 0
    plan = seen.pop("plan")
    assert plan.settings == Settings(steps=7, learning_rate=2e-3, evaluate_every=4, seed=3)
    assert plan.options == {"loss": "acceptance", "num_stages": 2}
    assert (len(seen["vocab"]), plan.seconds, plan.folder) == (16, 120, tmp_path)
    assert plan.learn_prompts
    shards = tmp_path / "shards"
    assert (seen["train"], seen["heldout"]) == ((shards, 90), (shards, None))
    assert seen["labelled"] == [(session.COUNTED_TOKENS, "train"), (500, "train")]
    assert (seen["dtype"], seen["device"]) == (torch.float32, "cpu")
    assert (seen["learned"], seen["unseen"]) == ([*texts[2:], texts[0]], texts[:2])
    other = ("--unseen", str(tmp_path / "held-out"))
    assert main(["train", "mlp_speculator", *sizes, *how, *places, *other]) == 0
    assert (seen["train"], seen["heldout"]) == ((shards, 90), (tmp_path / "held-out", None))


def test_the_command_line_knows_every_method():
    assert set(TRAINED) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_training_goes_on_from_weights_with_other_texts(target, texts, plan_for, method):
    plan = plan_for(method)
    first = train(target, texts[2:5], texts[:2], VOCAB, plan, quiet)
    tensors, before = read_weights(first)
    more = replace(plan, start=first, folder=plan.folder / "more", settings=replace(SLOW, steps=1))
    then, after = read_weights(train(target, texts[2:], texts[:2], VOCAB, more, quiet))
    assert after["went_on_from"] == before["data_hash"] != after["data_hash"]
    assert int(after["places"]) > int(before["places"])
    for name, tensor in tensors.items():
        torch.testing.assert_close(then[name], tensor, atol=0.05, rtol=0.1)


def test_weights_of_another_method_are_no_start(target, texts, plan_for):
    first = train(target, texts[2:], texts[:2], VOCAB, plan_for("mlp_speculator"), quiet)
    with pytest.raises(ValueError, match="are of mlp_speculator"):
        train(target, texts, texts[:2], VOCAB, replace(plan_for("mtp"), start=first), quiet)


def test_the_command_that_is_written_down_names_no_place_of_one_machine(
    target, texts, plan_for, tmp_path, monkeypatch
):
    corpus = str(session.weights.FOLDER.parent / "corpus" / "one.npz")
    argv = ["specdec_lab", "train", "mtp", "--corpus", corpus, "--folder", str(tmp_path)]
    monkeypatch.setattr(session.sys, "argv", argv)
    _, said = read_weights(train(target, texts[2:], texts[:2], VOCAB, plan_for("mtp"), quiet))
    shown = f"train mtp --corpus data/corpus/one.npz --folder {tmp_path.name}"
    assert said["command"] == f"python -m specdec_lab {shown}"
