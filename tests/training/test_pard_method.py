"""Masks behind a text: what they see, which are kept, and that they are learned.

pytest tests/training/test_pard_method.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.pard import PARD, load_masked_model
from specdec_lab.proposers.short_model import ShortModel
from specdec_lab.proposers.weights import save_weights, trained_state
from specdec_lab.training.acceptance import held_out
from specdec_lab.training.draft_model_method import DraftModelMethod
from specdec_lab.training.pard_method import PARDMethod, drop_tokens, masks_behind
from specdec_lab.training.states import TargetStates, Texts
from specdec_lab.training.trainer import Settings, Trainer
from toys import random_target
from training_texts import Written, quiet, written_by

MASK, KEPT = 32, range(0, 32, 2)
SETTINGS = Settings(steps=8, warmup=2, evaluate_every=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32, eos_ids=(31,))


@pytest.fixture(scope="module")
def written(target):
    return written_by(target)


@pytest.fixture
def texts(target, written, tmp_path):
    return texts_of(target, written, tmp_path)


def texts_of(target, written, folder, kept=range(32), **how) -> Texts:
    states = TargetStates(target, (), folder / "states", top=8)
    return Texts(written, states, DraftVocab(kept, 32), **{"positions": 40, **how})


def new_method(target, texts, **how) -> PARDMethod:
    return PARDMethod(target, texts, **{"num_layers": 1, **how})


def new_trainer(target, texts, folder, settings=SETTINGS, **how) -> Trainer:
    method = new_method(target, texts, **how)
    return Trainer(method, texts, texts, settings, folder / "run.pt")


# --- the layout -----------------------------------------------------------------------------------


def test_a_texts_masks_see_what_they_will_see_when_drafting(tmp_path):
    """At every place and depth the logits are those of reading the text and its masks anew."""
    target = random_target(dtype=torch.float64)
    written = [Written([3, 1, 4], [1, 5, 9, 2, 6]), Written([7, 2], [8, 1, 8, 2, 8, 4])]
    texts = texts_of(target, written, tmp_path, kept=KEPT)
    method = new_method(target, texts, num_layers=2)
    torch.nn.init.normal_(method.module.embed.mask)
    batch = texts.batch([0, 1])
    rows, places = batch.anchors()
    for depth, logits in enumerate(method.logits(batch, 4)):
        for n, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
            read = [*batch.tokens[row, : place + 2].tolist(), *[MASK] * depth]
            states, _ = method.module(torch.tensor([read]))
            expected = method.module.head(states[0, -1])
            torch.testing.assert_close(logits[n], expected, atol=1e-10, rtol=0)
    assert depth == 3


def test_dropping_masks_changes_no_mask_that_is_kept(target, texts):
    method, batch = new_method(target, texts), texts.batch([0, 1, 2])
    whole = list(method.logits(batch, 6))
    kept = method._kept(batch, 0.5)
    for depth, (chosen, logits) in enumerate(method._filled(batch, kept)):
        torch.testing.assert_close(logits, whole[depth][chosen], atol=1e-4, rtol=1e-4)
        expected = torch.arange(len(kept)) if depth == 0 else kept[:, depth - 1].nonzero()[:, 0]
        assert torch.equal(chosen, expected)


def test_who_sees_whom_by_hand():
    """Two texts of three tokens; the first has a chain of two masks behind token 1, the second one
    mask behind token 0.
    """
    kept = torch.tensor([[True, True], [True, False]])
    masks = masks_behind(torch.tensor([0, 1]), torch.tensor([1, 0]), kept, batch_size=2)
    assert masks.anchors.tolist() == [[1, 1], [0, -1]]
    assert masks.positions(3).tolist() == [[0, 1, 2, 2, 3], [0, 1, 2, 1, 0]]
    assert masks.visible(3).long().tolist() == [
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]],
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 1]],
    ]


def test_what_is_kept_is_nested_and_as_much_as_the_paper_says():
    kept = drop_tokens(100, 5, seed=3)
    assert kept.sum(0).tolist() == [70, 49, 35, 25, 20]  # 0.7**b, at least 0.2, rounded up
    assert bool((kept[:, 1:] <= kept[:, :-1]).all())
    assert torch.equal(kept, drop_tokens(100, 5, seed=3))
    assert not torch.equal(kept, drop_tokens(100, 5, seed=4))


# --- training -------------------------------------------------------------------------------------


def test_it_learns_to_fill_masks(target, texts, tmp_path):
    settings = Settings(steps=50, warmup=5, evaluate_every=50, learning_rate=2e-2)
    trainer = new_trainer(target, texts, tmp_path, settings, num_trained=4)
    before = held_out(trainer.method, texts.once())
    everything = texts.batch(range(6))
    start = trainer.method.loss(everything).item()
    mask = trainer.method.module.embed.mask.clone()
    trainer.run(quiet)
    (after,) = trainer.curve
    assert trainer.method.loss(everything).item() < start / 4
    assert after["tau"] > before["tau"] + 0.5
    assert after["alpha"][2] > before["alpha"][2]
    assert not torch.equal(trainer.method.module.embed.mask, mask)


def test_a_killed_run_ends_with_the_weights_of_a_whole_one(target, texts, tmp_path):
    whole = new_trainer(target, texts, tmp_path / "whole")
    whole.run(quiet)
    killed = new_trainer(target, texts, tmp_path / "killed")
    for number, batch in enumerate(texts.endless(SETTINGS.seed)):
        if number == 5:
            break  # what is learned after the checkpoint is lost
        if number == 3:
            killed.save()
        killed._learn(batch)
    resumed = new_trainer(target, texts, tmp_path / "killed")
    assert resumed.step == 3
    resumed.run(quiet)
    for name, tensor in trained_state(whole.method.module).items():
        assert torch.equal(trained_state(resumed.method.module)[name], tensor), name


def test_it_trains_with_products_in_16_bits(target, texts):
    method, batch = new_method(target, texts), texts.batch([0, 1])
    exact = method.loss(batch).item()
    with torch.autocast("cpu", torch.bfloat16):
        loss = method.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(exact, rel=0.05)
    assert bool(method.module.embed.mask.grad.isfinite().all())


def test_held_out_acceptance_is_what_decoding_accepts(target, written, texts, whole_products):
    """On the target's own greedy text, from every place of it: the replay is the run, as long as
    both multiply whole weights (in 4 bits, close calls fall as the processor rounds).
    """
    method = new_method(target, texts)
    method.module.head.bias.data[written[5].answer[3]] += 3  # so that something is accepted
    found = held_out(method, [texts.batch([5])], depth=2)
    drafter = PARD(target, ShortModel(method.module, texts.vocab, target))
    text, accepted = written[5], []
    for cut in range(len(text.answer)):
        prompt = text.prompt + text.answer[:cut]
        trace = generate(target, [prompt], drafter, k=2, max_new_tokens=3).trace
        accepted.append(trace.steps[0].num_accepted)
    assert found["judged"][0] == len(accepted)
    assert found["alpha"][0] == pytest.approx(sum(n > 0 for n in accepted) / len(accepted))
    assert 0 < found["alpha"][0] < 1


# --- where it starts ------------------------------------------------------------------------------


def draft_weights(target, texts, path, **metadata):
    """A trained draft model, as it is shipped."""
    method = DraftModelMethod(target, texts, num_layers=1)
    torch.nn.init.normal_(method.module.head.bias)
    save_weights(path, method.tensors(), method.metadata() | metadata)
    return method


def test_it_starts_from_a_draft_model(target, written, texts, tmp_path):
    path = tmp_path / "draft_model.safetensors"
    draft = draft_weights(target, texts, path)
    method = new_method(target, texts, start=path, num_layers=2)
    assert method.options()["num_layers"] == "1"  # the draft model's
    batch = texts.batch([0, 1])
    for got, expected in zip(method.logits(batch, 1), draft.logits(batch, 1), strict=True):
        torch.testing.assert_close(got, expected, atol=3e-2, rtol=1e-2)
    assert method.metadata()["start"] == "draft_model"
    even = texts_of(target, written, tmp_path, kept=KEPT)  # a vocabulary of its own
    other = new_method(target, even, start=path).module.head.bias
    torch.testing.assert_close(other, draft.module.head.bias[::2], atol=1e-3, rtol=1e-3)


def test_a_start_that_is_none_says_so(target, texts, tmp_path):
    path = tmp_path / "w.safetensors"
    draft_weights(target, texts, path, method="eagle")
    with pytest.raises(ValueError, match="weights for eagle: start from those of draft_model"):
        new_method(target, texts, start=path)
    draft_weights(target, texts, path, hidden_size="64")
    with pytest.raises(ValueError, match="hidden_size is 64 there and 32 here"):
        new_method(target, texts, start=path)


def test_what_is_saved_is_what_pard_loads(target, texts, tmp_path, whole_products):
    method, path = new_method(target, texts, num_trained=3), tmp_path / "pard.safetensors"
    assert method.metadata()["num_trained"] == "3"
    save_weights(path, method.tensors(), method.metadata(), "float16")
    loaded = load_masked_model(target, path).model
    ids = torch.tensor([[3, 1, MASK]])
    torch.testing.assert_close(loaded(ids)[0], method.module(ids)[0], atol=2e-2, rtol=1e-2)
