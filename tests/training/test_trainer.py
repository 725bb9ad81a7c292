"""Texts in batches, held-out acceptance, and a trainer that goes on where it was killed.

pytest tests/training/test_trainer.py
"""

import os

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.mlp_speculator import MLPSpeculator
from specdec_lab.proposers.weights import trained_state
from specdec_lab.study.overlap import logits_behind
from specdec_lab.training.acceptance import held_out
from specdec_lab.training.methods import Method
from specdec_lab.training.mlp_method import MLPSpeculatorMethod
from specdec_lab.training.states import TargetStates, Texts
from specdec_lab.training.trainer import Settings, Trainer
from toys import random_target
from training_texts import Written, quiet, written_by

SETTINGS = Settings(steps=12, warmup=3, evaluate_every=6, learning_rate=1e-2)


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32, eos_ids=(31,))


@pytest.fixture(scope="module")
def written(target):
    return written_by(target, 8, 16)


@pytest.fixture
def texts(target, written, tmp_path):
    return texts_of(target, written, tmp_path)


def texts_of(target, written, folder, kept=range(32), **how) -> Texts:
    layers = MLPSpeculatorMethod.hidden_layers(target)
    states = TargetStates(target, layers, folder / "states", top=8)
    return Texts(written, states, DraftVocab(kept, 32), **{"positions": 40, **how})


def new_method(target, texts, **how) -> Method:
    return MLPSpeculatorMethod(target, texts, **{"num_stages": 3, "width": 16, **how})


def new_trainer(target, texts, folder, settings=SETTINGS, **how) -> Trainer:
    method = new_method(target, texts, **how)
    return Trainer(method, texts, texts, settings, folder / "run.pt")


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_holds_the_targets_states_and_laws(target, written, texts):
    batch = texts.batch([0, 3])
    assert batch.tokens.shape == (
        2,
        max(len(w.prompt + w.answer) for w in (written[0], written[3])),
    )
    ids = written[0].prompt + written[0].answer
    assert batch.tokens[0, : len(ids)].tolist() == ids
    _, hidden = target.model(torch.tensor([ids]), None, (target.num_layers,))
    got = batch.hidden[target.num_layers][0, : len(ids) - 1]  # nothing is learnt behind the last
    torch.testing.assert_close(got, hidden[target.num_layers][0, :-1], atol=5e-3, rtol=1e-3)
    law = logits_behind(target, ids[:5])[0].softmax(-1).float()
    best = law.topk(8)
    assert batch.law.ids[0, 4].tolist() == best.indices.tolist()
    torch.testing.assert_close(batch.law.probs[0, 4], best.values, atol=1e-2, rtol=0)


def test_only_laws_that_say_the_answer_are_judged(target, written, tmp_path):
    done = [Written([1, 2, 3], [4, 5, 31]), Written([1, 2], [3, 4, 5, 6])]
    batch = texts_of(target, done, tmp_path).batch([0, 1])
    assert batch.judged.tolist() == [
        [False, False, True, True, True, False],  # nothing of the text follows its last token
        [False, True, True, True, True, False],
    ]
    whole = texts_of(target, done, tmp_path, learn_prompts=True).batch([0])
    assert whole.judged.tolist() == [[True, True, True, True, True, False]]


def test_every_depth_is_judged_by_the_law_behind_what_it_read(target, texts):
    batch = texts.batch([1, 2])
    rows, places = batch.anchors()
    for depth in range(3):
        law, judged = batch.judged_at(depth)
        tokens = batch.token_at(depth)
        for n in range(0, len(rows), 5):
            row, place = int(rows[n]), int(places[n]) + 1 + depth
            if place < batch.tokens.shape[1] and batch.judged[row, place]:
                assert bool(judged[n])
                assert torch.equal(law.ids[n], batch.law.ids[row, place])
                assert int(tokens[n]) == int(batch.tokens[row, place])
            else:
                assert not bool(judged[n])


def test_tokens_outside_the_draft_vocabulary_are_marked(target, written, tmp_path):
    law = texts_of(target, written, tmp_path, kept=range(0, 32, 2)).batch([0]).law
    whole = texts_of(target, written, tmp_path).batch([0]).law
    expected = torch.where(whole.ids % 2 == 0, whole.ids // 2, -1)
    assert torch.equal(law.ids, expected)
    assert torch.equal(law.probs, whole.probs)


def test_states_are_computed_once_and_again_when_cut_off(target, written, texts, monkeypatch):
    first = texts.batch([0])
    monkeypatch.setattr(texts.states, "_compute", lambda *_: pytest.fail("computed again"))
    assert torch.equal(texts.batch([0]).law.ids, first.law.ids)
    monkeypatch.undo()
    for path in texts.states.folder.rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(texts.batch([0]).law.ids, first.law.ids)


def test_states_that_lack_a_law_or_a_layer_are_computed_anew(target, tmp_path):
    ids, half = [4, 9, 3, 3, 7, 1], target.num_layers // 2
    few = TargetStates(target, (), tmp_path, top=8, also=(half,))
    assert few.of(ids, 3)["ids"].shape == (2, 8)
    whole = TargetStates(target, (half,), tmp_path, top=8)
    assert whole.of(ids, 3)[f"layer_{half}"].shape == (5, target.hidden_size)
    with_laws = whole.of(ids)
    assert torch.equal(with_laws["probs"][3:], few.of(ids, 3)["probs"])
    more = TargetStates(target, (half, target.num_layers), tmp_path, top=8).of(ids)
    assert torch.equal(more[f"layer_{half}"], with_laws[f"layer_{half}"])


def test_batch_n_is_the_same_from_wherever_one_starts(texts):
    def first_tokens(start, number):
        stream = texts.endless(seed=5, start=start)
        return [next(stream).tokens for _ in range(number)]

    whole = first_tokens(0, 9)
    assert all(torch.equal(a, b) for a, b in zip(whole[4:], first_tokens(4, 5), strict=True))
    other = next(texts.endless(seed=6)).tokens
    assert any(not torch.equal(other, tokens) for tokens in whole[:1])


def test_an_epoch_has_every_text_once_and_never_packs(texts):
    groups = texts._endless_groups(seed=0)
    seen = []
    while len(seen) < len(texts.texts):
        seen += next(groups)
    assert sorted(seen) == list(range(len(texts.texts)))
    assert sum(len(b.tokens) for b in texts.once()) == len(texts.texts)  # a row each


def test_no_text_is_an_error(target, tmp_path):
    with pytest.raises(ValueError, match="run 'train corpus' first"):
        texts_of(target, [], tmp_path)


# --- held-out acceptance --------------------------------------------------------------------------


class Oracle(Method):
    """Drafts the target's own best token, but fails at one depth."""

    name, depth = "oracle", 3

    def __init__(self, target, texts, fails_at):
        super().__init__(target, texts.vocab)
        self.module, self.fails_at = torch.nn.Identity(), fails_at

    def logits(self, batch, depth):
        """Nearly one-hot at the right token, or at the one after it."""
        for d in range(depth):
            law, _ = batch.judged_at(d)
            best = (law.ids[:, 0] + (d == self.fails_at)) % len(self.vocab)  # for -1, a wrong one
            yield 30.0 * torch.nn.functional.one_hot(best, len(self.vocab)).float()


@pytest.mark.parametrize(("fails_at", "alpha", "tau"), [(9, [1, 1, 1], 4), (1, [1, 0, 0], 2)])
def test_held_out_acceptance_of_drafts_that_are_known(target, texts, fails_at, alpha, tau):
    found = held_out(Oracle(target, texts, fails_at), texts.once())
    assert found["alpha"] == pytest.approx(alpha)
    assert found["tau"] == pytest.approx(tau)
    anchors = sum(len(text.answer) for text in texts.texts)
    assert found["judged"][0] in range(anchors, anchors + len(texts.texts) + 1)


def test_the_cap_is_what_the_draft_vocabulary_covers(target, written, tmp_path):
    texts = texts_of(target, written, tmp_path, kept=range(0, 32, 2))
    batch = texts.batch([0, 1])
    found = held_out(Oracle(target, texts, 9), [batch])
    law, judged = batch.judged_at(0)
    even = (law.ids[judged] >= 0).double()
    assert found["cap"][0] == pytest.approx(float(even[:, 0].mean()))
    shares = (law.probs[judged] * even).sum(-1) / law.probs[judged].sum(-1)
    assert found["cap"][1] == pytest.approx(float(shares.mean()))
    assert found["alpha"][0] == pytest.approx(found["cap"][0])  # nothing better can be drafted


def test_held_out_acceptance_is_what_decoding_accepts(target, written, texts, whole_products):
    """On the target's own greedy text, from every place of it: the replay is the run."""
    method = new_method(target, texts)
    found = held_out(method, [texts.batch([7])], depth=1)
    drafter = MLPSpeculator(target, method.module, vocab=texts.vocab)
    text, hits = written[7], []
    for cut in range(len(text.answer)):
        prompt = text.prompt + text.answer[:cut]
        trace = generate(target, [prompt], drafter, k=1, max_new_tokens=2).trace
        hits.append(trace.steps[0].num_accepted)
    assert found["judged"] == [len(hits)]
    assert found["alpha"] == [pytest.approx(sum(hits) / len(hits))]


# --- the trainer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["kl", "cross_entropy", "acceptance"])
def test_it_learns(target, texts, tmp_path, loss):
    settings = Settings(steps=60, warmup=5, evaluate_every=60, learning_rate=2e-2)
    trainer = new_trainer(target, texts, tmp_path, settings, loss=loss)
    before = held_out(trainer.method, texts.once())
    trainer.run(quiet)
    (after,) = trainer.curve
    assert trainer.finished
    assert after["tau"] > before["tau"] + 0.5
    assert after["step"] == 60


def test_a_killed_run_ends_with_the_weights_of_a_whole_one(target, texts, tmp_path):
    whole = new_trainer(target, texts, tmp_path / "whole")
    whole.run(quiet)
    killed = new_trainer(target, texts, tmp_path / "killed")
    for number, batch in enumerate(texts.endless(SETTINGS.seed)):
        if number == 7:
            break  # what is learned after the checkpoint is lost
        if number == 5:
            killed.save()
        killed._learn(batch)
    resumed = new_trainer(target, texts, tmp_path / "killed")
    assert resumed.step == 5
    resumed.run(quiet)
    for name, tensor in trained_state(whole.method.module).items():
        assert torch.equal(trained_state(resumed.method.module)[name], tensor), name
    drop = ("seconds",)
    strip = [
        [{k: v for k, v in e.items() if k not in drop} for e in t.curve] for t in (whole, resumed)
    ]
    assert strip[0][1:] == strip[1][-1:]


def test_a_kill_while_saving_leaves_the_older_checkpoint(target, texts, tmp_path, monkeypatch):
    trainer = new_trainer(target, texts, tmp_path)
    trainer.save()
    trainer._learn(texts.batch([0]))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        trainer.save()
    monkeypatch.undo()
    assert new_trainer(target, texts, tmp_path).step == 0


def test_a_run_stops_after_its_time_and_goes_on(target, texts, tmp_path):
    trainer = new_trainer(target, texts, tmp_path)
    trainer.run(quiet, seconds=-1)
    assert trainer.step == 0
    again = new_trainer(target, texts, tmp_path)
    again.run(quiet)
    assert again.finished
    assert new_trainer(target, texts, tmp_path).curve == again.curve


def test_a_checkpoint_of_another_run_is_refused(target, written, texts, tmp_path):
    new_trainer(target, texts, tmp_path).save()
    other = Settings(steps=13)
    with pytest.raises(ValueError, match="other settings or texts: delete it"):
        new_trainer(target, texts, tmp_path, other)
    fewer = texts_of(target, written[:5], tmp_path)
    with pytest.raises(ValueError, match="other settings or texts"):
        new_trainer(target, fewer, tmp_path)
    others = texts_of(target, written, tmp_path, kept=range(31))
    with pytest.raises(ValueError, match="other settings or texts"):
        new_trainer(target, others, tmp_path)
    (tmp_path / "run.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is damaged"):
        new_trainer(target, texts, tmp_path)


def test_the_rate_rises_and_falls():
    settings = Settings(steps=100, warmup=10, learning_rate=1.0, final_rate=0.03)
    rates = [settings.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(1)
    assert rates[55] == pytest.approx((1 + 0.03) / 2, abs=0.02)
    assert settings.rate(100) == pytest.approx(0.03)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_only_matrices_decay_and_the_targets_weights_stay(target, texts, tmp_path):
    trainer = new_trainer(target, texts, tmp_path)
    decay = [
        (p.ndim, g["weight_decay"]) for g in trainer.optimizer.param_groups for p in g["params"]
    ]
    assert {pair for pair in decay if pair[0] == 2} == {(2, 0.05)}
    assert {pair for pair in decay if pair[0] == 1} == {(1, 0.0)}
    before = target.model.embed.weight.clone()
    trainer._learn(texts.batch([0]))
    assert torch.equal(target.model.embed.weight, before)
    assert trainer.method.module.head.weight.grad is None


def test_a_loss_that_is_no_number_stops(target, texts, tmp_path):
    trainer = new_trainer(target, texts, tmp_path)
    trainer.method.module.output.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"at step 0: lower the learning rate"):
        trainer._learn(texts.batch([0]))


@pytest.mark.gpu
def test_it_learns_on_cuda(written, tmp_path):
    target = random_target(dtype=torch.float32, device="cuda")
    texts = texts_of(target, written, tmp_path)
    settings = Settings(steps=60, warmup=5, evaluate_every=30, learning_rate=2e-2)
    trainer = new_trainer(target, texts, tmp_path, settings)
    trainer.run(quiet)
    assert trainer.curve[1]["tau"] > trainer.curve[0]["tau"]


def test_an_unknown_loss_is_refused(target, texts):
    with pytest.raises(ValueError, match="loss must be one of kl, cross_entropy, acceptance"):
        new_method(target, texts, loss="hinge")
