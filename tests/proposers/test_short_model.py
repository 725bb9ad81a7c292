"""The short model: layers of the target that can be trained, and drafts over a draft vocabulary.

pytest tests/proposers/test_short_model.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.short_model import METHOD, ShortModel, new_short_model
from specdec_lab.proposers.weights import describe_target, save_weights, trained_state
from specdec_lab.study.overlap import logits_behind
from toys import random_target, sequence_law, total_variation, whole_law

GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
PENALISED = Sampling(temperature=1.1, presence_penalty=0.7, bias={1: 9.0, 2: 1.0})
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))


@pytest.fixture
def target():
    return random_target(max_context=256)


def short(target, kept=KEPT, num_layers=1) -> ShortModel:
    vocab = DraftVocab(kept, target.vocab_size)
    return ShortModel(new_short_model(target, vocab, num_layers), vocab, target)


def saved(path, target) -> None:
    vocab = DraftVocab(KEPT, target.vocab_size)
    tensors = trained_state(new_short_model(target, vocab, 1))
    described = {"method": METHOD, **describe_target(target), "num_layers": "1"}
    save_weights(path, tensors | {"draft_to_target": vocab.draft_to_target}, described)


def test_all_layers_give_the_targets_own_logits(target):
    model = short(target, num_layers=2)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    states, _ = model.model(ids)
    expected, _ = target.model(ids)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(model.model.head(states), target.model.head(states)[..., KEPT])


def test_layers_and_norm_are_trained_and_the_target_is_left_alone(target):
    model = new_short_model(target, DraftVocab(KEPT, 32), 1)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert "embed.weight" not in trained
    assert {"norm.weight", "head.bias", "layers.0.mlp.down.weight"} <= trained
    before = target.model.norm.weight.clone()
    states, _ = model(torch.tensor([[1, 2, 3]]))
    model.head(states).square().sum().backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data -= parameter.grad
    assert torch.equal(target.model.norm.weight, before)


def test_more_layers_than_there_are_is_an_error(target):
    with pytest.raises(ValueError, match="num_layers must be from 1 to 2, not 3"):
        new_short_model(target, DraftVocab(KEPT, 32), 3)


@pytest.mark.parametrize("sampling", [GREEDY, WARM, PENALISED])
def test_only_tokens_of_the_vocabulary_are_drafted_with_their_law(target, sampling):
    model = short(target)
    drafter = DraftModel(target, model)
    asked = Request.checked(target, PROMPTS, drafter, 3, sampling, "auto", 20, None)
    loop = Loop(target, asked, CounterRandomness([0] * 3))
    draft = loop.propose().draft
    assert bool((draft.tokens % 2 == 0).all())
    if sampling is WARM:
        logits = logits_behind(model, PROMPTS[0])[0]
        assert logits.shape == (16,)
        torch.testing.assert_close(draft.probs[0, 0, KEPT], sampling.probs(logits))
        assert float(draft.probs[..., 1::2].abs().max()) == 0


@pytest.mark.parametrize(("rule", "drafting"), [("match", "greedy"), ("reject", "probabilistic")])
def test_the_law_of_the_text_is_the_targets(rule, drafting):
    """Enumerated; token 1 can never be drafted."""
    target = random_target(4, vocab_size=3)
    drafter = DraftModel(target, short(target, kept=[0, 2]), drafting)
    got = whole_law(target, drafter, 1, rule, 2)

    def law(context):
        return logits_behind(target, context)[0].softmax(-1).tolist()

    assert total_variation(got, sequence_law(law, (0, 1), 2)) < 1e-12


def test_weights_are_found_by_name_or_path(tmp_path, monkeypatch):
    target = random_target(dtype=torch.float32)
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    config = {"method": "draft_model", "model": "trained"}
    with pytest.raises(OSError, match="specdec_lab train draft_model"):
        load_proposer(config, target)
    saved(tmp_path / "draft_model.safetensors", target)
    for model in ("trained", tmp_path / "draft_model.safetensors"):
        drafter = load_proposer({**config, "model": model}, target)
        got = generate(target, PROMPTS, drafter, max_new_tokens=20)
        assert got.tokens == generate(target, PROMPTS, max_new_tokens=20).tokens
    with pytest.raises(ValueError, match="vocab_size is 32 there and 40 here"):
        load_proposer(config, random_target(vocab_size=40, dtype=torch.float32))


def test_a_whole_step_reads_nothing_on_the_host():
    target = random_target(dtype=torch.float32, device="meta")
    drafter = DraftModel(target, short(target))
    sampling = Sampling(temperature=0.8, frequency_penalty=0.1)
    asked = Request.checked(target, PROMPTS, drafter, 3, sampling, "auto", 9, None)
    loop = Loop(target, asked, CounterRandomness([0] * 3, "meta"))
    for _ in range(2):
        admitted = loop.propose()
        assert loop.advance(admitted, loop.score(admitted.draft)).is_meta
