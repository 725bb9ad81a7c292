"""EAGLE-1, EAGLE-3 and MTP, unrolled over a text as they draft, and what they learn from it.

pytest tests/training/test_feature_methods.py
"""

import pytest
import torch
import torch.nn.functional as F

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle
from specdec_lab.proposers.feature_head import load_head
from specdec_lab.proposers.mtp import MTP
from specdec_lab.proposers.weights import trained_state
from specdec_lab.training.acceptance import held_out
from specdec_lab.training.feature_methods import Eagle1Method, Eagle3Method, MTPMethod
from specdec_lab.training.session import Plan, save
from specdec_lab.training.states import TargetStates, Texts
from specdec_lab.training.trainer import Settings, Trainer
from specdec_lab.training.unrolling import unroll
from toys import random_target
from training_texts import quiet, written_by

SETTINGS = Settings(steps=40, warmup=5, evaluate_every=40, learning_rate=1e-2)
KINDS = [Eagle1Method, Eagle3Method, MTPMethod]
each_method = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


@pytest.fixture(scope="module")
def written(target):
    return written_by(target, 6, 16)


def texts_of(target, written, kind, folder, kept=range(0, 32)) -> Texts:
    states = TargetStates(target, kind.hidden_layers(target), folder / "states", top=8)
    return Texts(written, states, DraftVocab(kept, 32), positions=40)


# --- unrolling ------------------------------------------------------------------------------------


def by_hand(head, batch, row: int, place: int, depth: int) -> list[torch.Tensor]:
    """The logits of a draft from one place: the text so far with the target's states, then one
    token after the other with the head's own.
    """
    cache = head.new_cache(1, 64)
    hidden = {i: states[row : row + 1, : place + 1] for i, states in batch.hidden.items()}
    features, logits = head.features(hidden), []
    tokens = batch.tokens[row : row + 1, 1 : place + 2]
    for step in range(min(depth, batch.tokens.shape[1] - 1 - place)):
        features, states = head(features, tokens, cache)
        logits.append(head.logits(states[0, -1]))
        cache.keep(None, torch.tensor([tokens.shape[1]]))
        features = features[:, -1:]
        tokens = batch.tokens[row : row + 1, place + 2 + step : place + 3 + step]
    return logits


@each_method
def test_unrolled_over_the_text_is_a_draft_from_every_place(written, kind, tmp_path):
    target = random_target()  # in float64
    texts = texts_of(target, written, kind, tmp_path)
    method, batch = kind(target, texts), texts.batch([1, 3, 4])
    rows, places = (index.tolist() for index in batch.anchors())
    with torch.no_grad():
        unrolled = list(method.logits(batch, 4))
        drafts = [by_hand(method.module, batch, r, p, 4) for r, p in zip(rows, places, strict=True)]
    compared = 0
    for depth, logits in enumerate(unrolled):
        assert logits.shape == (len(rows), 32)
        _, judged = batch.judged_at(depth)
        for n in judged.nonzero().flatten().tolist():
            torch.testing.assert_close(logits[n], drafts[n][depth], atol=1e-10, rtol=0)
            compared += 1
    assert compared > 100


@each_method
def test_every_step_passes_its_gradient_to_those_before(written, kind, tmp_path):
    """Autograd against a finite difference, in a direction that moves all weights."""
    target = random_target()
    method = kind(target, texts_of(target, written, kind, tmp_path))
    batch = texts_of(target, written, kind, tmp_path).batch([0, 2])
    goal = torch.randn(1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def last_step() -> torch.Tensor:
        *_, (_, states) = unroll(method.module, batch, 3)
        return (states * goal).sum()

    trained = [p for p in method.module.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(last_step(), trained, allow_unused=True)  # no head in it
    generator = torch.Generator().manual_seed(1)
    ways = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in trained]
    slope = sum((g * w).sum() for g, w in zip(gradients, ways, strict=True) if g is not None)
    ends = []
    for step in (1e-6, -2e-6):
        for parameter, way in zip(trained, ways, strict=True):
            parameter.data.add_(way, alpha=step)
        ends.append(last_step().item())
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope.item(), rel=1e-4)


def test_later_steps_are_learned_in_the_last_part_of_training(target, written, tmp_path):
    texts = texts_of(target, written, MTPMethod, tmp_path)
    method = MTPMethod(target, texts, num_steps=3, unrolled_from=0.6)
    assert [method.trained_depth(part) for part in (0.0, 0.59, 0.6, 1.0)] == [1, 1, 3, 3]
    batch = texts.batch([0, 1])
    each = list(method.losses(batch, 3))
    judged = [batch.judged_at(depth)[1] for depth in range(3)]
    early = each[0][judged[0]].mean()
    torch.testing.assert_close(method.loss(batch, 0.5), early)
    weights = [0.6**depth * j for depth, j in enumerate(judged)]
    late = sum((e * w).sum() for e, w in zip(each, weights, strict=True)) / sum(map(sum, weights))
    torch.testing.assert_close(method.loss(batch, 0.7), late)


# --- losses ---------------------------------------------------------------------------------------


def test_eagle_1_learns_the_features_too(target, written, tmp_path):
    texts = texts_of(target, written, Eagle1Method, tmp_path)
    batch = texts.batch([1, 2])
    weighed, alone = (Eagle1Method(target, texts, feature_weight=w) for w in (0.25, 0.0))
    rows, places = batch.anchors()
    head = weighed.module
    states = (batch.hidden[target.num_layers] - head.state_mean) / head.state_spread
    steps = unroll(head, batch, 2)
    both = zip(weighed.losses(batch, 2), alone.losses(batch, 2), steps, strict=True)
    for depth, (with_features, without, (predicted, _)) in enumerate(both):
        _, judged = batch.judged_at(depth)
        true = states[rows[judged], places[judged] + 1 + depth]  # of the token that is drafted
        distance = F.smooth_l1_loss(predicted[judged], true, reduction="none").mean(-1)
        expected = without[judged] + 0.25 * distance
        torch.testing.assert_close(with_features[judged], expected)


# --- training -------------------------------------------------------------------------------------


DRAFTERS = {
    "eagle_1": lambda target, path: Eagle(target, version=1, weights=path),
    "eagle_3": lambda target, path: Eagle(target, version=3, weights=path),
    "mtp": lambda target, path: MTP(target, weights=path),
}


@each_method
def test_it_learns_and_what_was_learned_drafts(target, written, kind, tmp_path, whole_products):
    """On the target's own greedy text: what `held_out` foresees is what decoding accepts."""
    texts = texts_of(target, written, kind, tmp_path)
    trainer = Trainer(kind(target, texts), texts, texts, SETTINGS, tmp_path / "run.pt")
    method, before = trainer.method, held_out(trainer.method, texts.once())
    frozen = target.model.embed.weight.clone()
    trainer.run(quiet)
    (after,) = trainer.curve
    assert after["tau"] > before["tau"] + 0.5
    assert after["overlap"][0] > before["overlap"][0] + 0.1
    assert torch.equal(target.model.embed.weight, frozen)

    path = save(trainer, Plan(kind.name, SETTINGS, folder=tmp_path))
    method.module, _ = load_head(kind.head, target, path)  # rounded, as it will draft
    foreseen = held_out(method, [texts.batch([5])])
    drafter, text = DRAFTERS[kind.name](target, path), written[5]
    judged, accepted = [0] * 4, [0] * 4
    for cut in range(len(text.answer)):
        prompt = text.prompt + text.answer[:cut]
        trace = generate(target, [prompt], drafter, k=4, max_new_tokens=5).trace
        for depth in range(min(4, len(text.answer) - cut)):
            reached = trace.steps[0].num_accepted >= depth
            judged[depth] += reached
            accepted[depth] += trace.steps[0].num_accepted > depth
    assert foreseen["judged"] == judged
    assert foreseen["alpha"] == [a / max(j, 1) for a, j in zip(accepted, judged, strict=True)]
    assert accepted[1] > 0


@each_method
def test_a_killed_run_ends_with_the_weights_of_a_whole_one(target, written, kind, tmp_path):
    texts = texts_of(target, written, kind, tmp_path, kept=range(0, 32, 2))
    settings = Settings(steps=8, warmup=2, evaluate_every=8, learning_rate=1e-2)

    def trainer(name: str) -> Trainer:
        method = kind(target, texts, unrolled_from=0.25)
        return Trainer(method, texts, texts, settings, tmp_path / name)

    whole, killed = trainer("whole.pt"), trainer("killed.pt")
    whole.run(quiet)
    for number, batch in zip(range(5), texts.endless(settings.seed), strict=False):
        if number == 3:  # one step into the unrolled part
            killed.save()
        killed._learn(batch)
    resumed = trainer("killed.pt")
    assert resumed.step == 3
    resumed.run(quiet)
    for name, tensor in trained_state(whole.method.module).items():
        assert torch.equal(trained_state(resumed.method.module)[name], tensor), name
