"""EAGLE: what its heads read, how they start, versions and weights.

pytest tests/proposers/test_eagle.py
"""

from dataclasses import replace

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import Transformer, chain_layout
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle, Eagle1Head, Eagle3Head, fused_layers
from specdec_lab.proposers.tree_expansion import TreeShape
from specdec_lab.proposers.weights import (
    describe_target,
    read_weights,
    save_weights,
    trained_state,
)
from toys import random_target

PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))


def head_for(head_class, target, seed=0):
    vocab = DraftVocab(KEPT, target.vocab_size)
    head = head_class.for_target(target, vocab)
    ids = torch.randint(32, (4, 50), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, hidden = target.model(ids, None, head.hidden_layers)
    states = torch.cat([hidden[layer] for layer in head.hidden_layers], dim=-1).flatten(0, 1)
    head.state_mean.copy_(states.mean(0))
    head.state_spread.copy_(states.std(0))
    head.initialise(target, torch.Generator().manual_seed(seed))
    return head, vocab


def saved(path, target, head_class=Eagle3Head, storage="float16", **metadata):
    """What training writes: trained numbers and the draft vocabulary."""
    head, vocab = head_for(head_class, target)
    tensors = trained_state(head) | {"draft_to_target": vocab.draft_to_target}
    described = {"method": head_class.method, **describe_target(target), **metadata}
    save_weights(path, tensors, described, storage)
    return head


@pytest.fixture
def target():
    return random_target(dtype=torch.float32)


# --- Heads ----------------------------------------------------------------------------------------


def test_the_layers_of_eagle_3_are_a_low_a_middle_and_a_high_one():
    assert fused_layers(30) == (2, 15, 27)  # as the paper's code has them
    assert fused_layers(8) == (2, 4, 5)
    for few in range(1, 8):
        layers = fused_layers(few)
        assert list(layers) == sorted(set(layers))
        assert layers[-1] <= few


@torch.no_grad()
def read_alone(head, features, tokens):
    """Single pairs (n, H) and (n,), each a text of its own: what `read` makes of them."""
    features, tokens = features[:, None], tokens[:, None]
    made, states = head.read(features, tokens, chain_layout(head.arch, features))
    return made[:, 0], states[:, 0]


def test_eagle_1_by_hand(target):
    """Without branches the layer passes on W [e; f] + b, and the frozen head reads that as a state
    of the target.
    """
    head, _ = head_for(Eagle1Head, target)
    for branch in (head.attention.output, head.mlp.down):
        branch.weight.data.zero_()
    torch.nn.init.normal_(head.mix.bias)
    features, tokens = torch.randn(5, 32), torch.arange(5)
    made, states = read_alone(head, features, tokens)
    embedded = target.model.embed.weight[tokens]
    embedded = embedded / embedded.square().mean(-1, keepdim=True).sqrt()
    mixed = torch.cat((embedded, features), dim=-1) @ head.mix.weight.T + head.mix.bias
    torch.testing.assert_close(made, mixed, atol=1e-4, rtol=0)
    rows = target.model.head.unpacked()[KEPT]
    expected = (mixed * head.state_spread + head.state_mean) @ rows.T + head.head.bias
    torch.testing.assert_close(head.logits(states), expected, atol=1e-3, rtol=1e-4)


def test_eagle_1_reads_final_states_and_predicts_the_same(target):
    """The mean and the spread are taken out in front of the layer and put back behind it."""
    head, _ = head_for(Eagle1Head, target)
    for branch in (head.attention.output, head.mlp.down):
        branch.weight.data.zero_()
    head.mix.weight.data.zero_()
    head.mix.weight.data[:, 32:] = torch.eye(32)
    final = torch.randn(6, 32) * 3
    _, states = read_alone(head, head.features({target.num_layers: final}), torch.arange(6))
    torch.testing.assert_close(states, final, atol=1e-4, rtol=0)


def test_eagle_3_by_hand(target):
    """The stream is g, tokens enter through q, k and v alone, the head reads a norm of it."""
    head, _ = head_for(Eagle3Head, target)
    hidden = {layer: torch.randn(4, 32) for layer in head.hidden_layers}
    features, tokens = head.features(hidden), torch.arange(4)
    stacked = torch.cat([hidden[layer] for layer in head.hidden_layers], dim=-1)
    fused = (stacked - head.state_mean) / head.state_spread @ head.fuse.weight.T
    torch.testing.assert_close(features, fused, atol=1e-4, rtol=0)
    made, states = read_alone(head, features, tokens)
    torch.testing.assert_close(states, head.output_norm(made), atol=1e-5, rtol=0)
    assert not torch.allclose(made, read_alone(head, features, tokens + 1)[0], atol=1e-3)
    head.attention.output.weight.data.zero_()
    made, _ = read_alone(head, features, tokens)
    torch.testing.assert_close(made, read_alone(head, features, tokens + 1)[0], atol=0, rtol=0)
    expected = features + head.mlp(head.mlp_norm(features))
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=0)


def test_what_is_trained_and_what_is_the_targets(target):
    """EAGLE-1 trains no head but its bias, EAGLE-3 the whole of it; the table is never touched."""
    first, third = (head_for(kind, target)[0] for kind in (Eagle1Head, Eagle3Head))
    rows = target.model.head.unpacked()[KEPT]
    assert torch.equal(third.head.weight, rows)
    names = trained_state(first).keys()
    assert "head.bias" in names
    assert "head.weight" not in names
    assert {"head.weight", "head.bias", "fuse.weight"} <= trained_state(third).keys()
    for head in (first, third):
        assert not any(name.startswith("embed") for name in trained_state(head))
        assert head.embed.weight.data_ptr() == target.model.embed.weight.data_ptr()
        shared = {p.data_ptr() for p in target.model.layers.parameters()}
        assert not shared & {p.data_ptr() for p in head.parameters()}


@pytest.mark.parametrize("head_class", [Eagle1Head, Eagle3Head])
def test_a_start_passes_the_feature_on(target, head_class):
    """Nearly as it was, with logits smaller than the target's; every seed is a start of its own."""
    head, _ = head_for(head_class, target)
    ids = torch.randint(32, (1, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        final, hidden = target.model(ids, None, head.hidden_layers)
        features = head.features(hidden)[:, :-1]
        made, states = head.read(features, ids[:, 1:], chain_layout(head.arch, features))
    both = torch.stack((made.flatten(), features.flatten()))
    assert torch.corrcoef(both)[0, 1] > 0.5
    assert head.logits(states).std() < target.model.head(final).std()
    other, _ = head_for(head_class, target, seed=1)
    assert any(
        not torch.equal(a, b) for a, b in zip(head.parameters(), other.parameters(), strict=True)
    )


def test_a_target_with_biases_gives_them_to_the_copied_layer():
    """Like those of qwen2: none of its biases stays as it was drawn."""
    arch = replace(random_target().model.arch, qkv_bias=True, output_bias=True, mlp_bias=True)
    target = Target(Transformer(arch), max_context=64)
    for head_class in (Eagle1Head, Eagle3Head):
        head, _ = head_for(head_class, target)
        theirs = target.model.layers[-1].attention
        assert torch.equal(head.attention.qkv.bias, theirs.qkv.bias)


# --- Versions and weights -------------------------------------------------------------------------


def test_versions_are_heads_and_shapes(tmp_path, monkeypatch, target):
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    for kind in (Eagle1Head, Eagle3Head):
        saved(tmp_path / f"{kind.method}.safetensors", target, kind)
    first, second, third = (load_proposer(f"eagle_{n}", target) for n in (1, 2, 3))
    trees = load_proposer({"method": "eagle", "tree": True, "depth": 3}, target)
    assert [type(e.head) for e in (first, second, third)] == [Eagle1Head, Eagle1Head, Eagle3Head]
    assert [e.shape for e in (first, second, third)] == [None, TreeShape(3, 4, (3, 2, 1, 1)), None]
    assert trees.shape == TreeShape(3, 3, (3, 2, 1, 1))
    assert (first.default_k, second.default_k, trees.default_k) == (3, 12, 12)
    assert third.hidden_layers == (0, 1, 2)
    numbers = trained_state(head_for(Eagle3Head, target)[0]).values()
    assert third.card["parameters"] == sum(number.numel() for number in numbers)
    assert load_proposer({"method": "eagle3", "num_speculative_tokens": 2}, target).default_k == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"version": 4}, "version must be 1, 2 or 3, not 4"),
        ({"version": 1, "tree": True}, "its weights draft trees with version=2"),
        ({"tree": True, "branching": ()}, "branching must name"),
        ({"version": 2, "width": 0}, "width must be a whole number"),
    ],
)
def test_wrong_options_get_a_sentence(target, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Eagle(target, **options)


@pytest.mark.parametrize("head_class", [Eagle1Head, Eagle3Head])
@pytest.mark.parametrize(("storage", "error"), [("float16", 2e-2), ("int8", 0.2)])
def test_weights_come_back(tmp_path, target, head_class, storage, error, whole_products):
    path = tmp_path / "w.safetensors"
    head = saved(path, target, head_class, storage)
    drafter = Eagle(target, 3 if head_class is Eagle3Head else 1, path)
    assert drafter.vocab.draft_to_target.tolist() == KEPT
    features, tokens = (
        torch.randn(4, 32, generator=torch.Generator().manual_seed(0)),
        torch.arange(4),
    )
    for one, other in zip(
        read_alone(drafter.head, features, tokens), read_alone(head, features, tokens), strict=True
    ):
        torch.testing.assert_close(one, other, atol=error * float(other.std()), rtol=0)
    tensors, metadata = read_weights(path)
    assert (metadata["method"], metadata["storage"]) == (head_class.method, storage)
    assert "embed.weight" not in tensors


def test_weights_of_another_head_or_shape_are_refused(tmp_path, target):
    path = tmp_path / "w.safetensors"
    saved(path, target, Eagle1Head)
    with pytest.raises(ValueError, match="holds weights for eagle_1, not for eagle_3"):
        Eagle(target, 3, path)
    with pytest.raises(ValueError, match="vocab_size is 32 there and 40 here"):
        Eagle(random_target(vocab_size=40, dtype=torch.float32), 1, path)
    saved(path, target, Eagle1Head, method="eagle_3")
    with pytest.raises(ValueError, match="The weights do not fit"):
        Eagle(target, 3, path)
    (tmp_path / "w.safetensors").write_bytes(b"no weights")
    with pytest.raises(OSError, match="can't be read"):
        Eagle(target, 3, path)
    head, vocab = head_for(Eagle1Head, target)
    with pytest.raises(ValueError, match="a head of eagle_3, not eagle_1"):
        Eagle(target, 3, head, vocab=vocab)


def test_weights_for_another_model_of_that_shape_only_warn(tmp_path, target):
    saved(tmp_path / "w.safetensors", target)
    other = random_target(1, dtype=torch.float32)
    with pytest.warns(RuntimeWarning, match="trained for random, another model"):
        drafter = Eagle(other, weights=tmp_path / "w.safetensors")
    got = generate(other, PROMPTS, drafter, max_new_tokens=12)
    assert got.tokens == generate(other, PROMPTS, max_new_tokens=12).tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_20_a_target_of_another_precision(tmp_path, target, dtype):
    saved(tmp_path / "w.safetensors", target)
    drafter = Eagle(random_target(dtype=dtype), 3, tmp_path / "w.safetensors")
    target = random_target(dtype=dtype)
    for sampling in (Sampling(), Sampling(temperature=0.9)):
        got = generate(target, PROMPTS, drafter, sampling=sampling, seed=1, max_new_tokens=8)
        assert [len(tokens) for tokens in got.tokens] == [8, 8, 8]
