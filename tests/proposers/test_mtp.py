"""MTP: what its module reads and passes on, how it starts, and its weights.

pytest tests/proposers/test_mtp.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.transformer import chain_layout
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle
from specdec_lab.proposers.mtp import MTP, MTPHead
from specdec_lab.proposers.tree_expansion import TreeShape
from specdec_lab.proposers.weights import describe_target, save_weights, trained_state
from toys import random_target

PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))


@pytest.fixture
def target():
    return random_target(dtype=torch.float32)


def head_for(target) -> tuple[MTPHead, DraftVocab]:
    vocab = DraftVocab(KEPT, target.vocab_size)
    head = MTPHead.for_target(target, vocab)
    head.state_mean.uniform_(-1, 1)
    head.state_spread.uniform_(0.5, 2)
    head.initialise(target, torch.Generator().manual_seed(0))
    return head, vocab


@torch.no_grad()
def read_alone(head, features, tokens):
    """Single pairs (n, H) and (n,), each a text of its own: what `read` makes of them."""
    features, tokens = features[:, None], tokens[:, None]
    made, states = head.read(features, tokens, chain_layout(head.arch, features))
    return made[:, 0], states[:, 0]


def test_the_module_by_hand(target):
    """Without branches: norm(M [norm(h); norm(e)]), which is passed on and read by the head."""
    head, _ = head_for(target)
    for branch in (head.attention.output, head.mlp.down):
        branch.weight.data.zero_()
    for norm in (head.feature_norm, head.token_norm, head.output_norm):
        norm.weight.data.uniform_(0.5, 2)
    features, tokens = torch.randn(5, 32), torch.arange(5)
    made, states = read_alone(head, features, tokens)
    normed = head.token_norm(target.model.embed.weight[tokens]), head.feature_norm(features)
    by_hand = head.output_norm(torch.cat(normed, dim=-1) @ head.mix.weight.T)
    torch.testing.assert_close(made, by_hand, atol=1e-5, rtol=0)
    torch.testing.assert_close(states, by_hand * head.state_spread + head.state_mean)
    rows = target.model.head.unpacked()[KEPT]
    expected = states @ rows.T + head.head.bias
    torch.testing.assert_close(head.logits(states), expected, atol=1e-3, rtol=1e-4)


def test_what_is_passed_on_is_a_feature_like_those_of_the_target(target):
    """The state behind the norm, standardised, is what the next step would read of the target."""
    head, _ = head_for(target)
    made, states = read_alone(head, torch.randn(5, 32), torch.arange(5))
    again = head.features({target.num_layers: states})
    torch.testing.assert_close(again, made, atol=1e-5, rtol=0)


def test_a_start_passes_the_feature_on(target):
    head, _ = head_for(target)
    features, tokens = torch.randn(40, 32), torch.arange(32).repeat(2)[:40]
    made, _ = read_alone(head, features, tokens)
    assert torch.corrcoef(torch.stack((made.flatten(), features.flatten())))[0, 1] > 0.5


def test_weights_come_back_and_draft(tmp_path, monkeypatch, target):
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    head, vocab = head_for(target)
    trained = trained_state(head)
    assert not any(name.startswith("embed") or name == "head.weight" for name in trained)
    path = tmp_path / "mtp.safetensors"
    told = {"method": "mtp", **describe_target(target), "tokens": "1000"}
    save_weights(path, trained | {"draft_to_target": vocab.draft_to_target}, told, "int8")
    drafter = load_proposer({"method": "mtp", "num_speculative_tokens": 2}, target)
    assert (drafter.default_k, drafter.shape, drafter.card["training_tokens"]) == (2, None, 1000)
    pairs = torch.randn(4, 32), torch.arange(4)
    for one, other in zip(read_alone(drafter.head, *pairs), read_alone(head, *pairs), strict=True):
        torch.testing.assert_close(one, other, atol=0.1, rtol=0)
    tree = MTP(target, tree=True, depth=2, drafting="greedy")
    assert tree.shape == TreeShape(3, 2, (3, 2, 1, 1))
    plain = generate(target, PROMPTS, max_new_tokens=12).tokens
    for drafting in (drafter, tree):
        assert generate(target, PROMPTS, drafting, max_new_tokens=12).tokens == plain
    with pytest.raises(ValueError, match="holds weights for mtp, not for eagle_1"):
        Eagle(target, 1, path)
