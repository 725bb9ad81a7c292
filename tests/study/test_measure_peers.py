"""Ours beside transformers: the same work, the same text, a draft both load. No clock is tested.

pytest tests/study/test_measure_peers.py
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.study.measure import peers, race
from specdec_lab.study.measure.early_exit import early_exit_draft


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint of three layers, and its first two layers as one of their own."""
    place = tmp_path_factory.mktemp("peers")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(place / "target")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEC_LAB_CACHE", str(place / "cache"))
        return place / "target", early_exit_draft(place / "target", 2, report=lambda line: None)


def test_the_draft_is_the_targets_first_layers(folders):
    assert len(load_target(folders[1]).model.layers) == 2
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    peer, draft = (peers.load_peer(folder) for folder in folders)
    with torch.inference_mode():
        third = peer(tokens, output_hidden_states=True).hidden_states[2]
        expected = peer.lm_head(peer.model.norm(third))
        assert torch.equal(draft(tokens).logits, expected)


def test_the_draft_is_written_once(folders, monkeypatch):
    target, draft = folders
    monkeypatch.setenv("SPECDEC_LAB_CACHE", str(draft.parent))
    said = []
    assert early_exit_draft(target, 2, said.append) == draft
    assert said == []
    with pytest.raises(ValueError, match="between 1 and 2, not 3"):
        early_exit_draft(target, 3)


def test_all_arms_write_the_same_text_and_draft_the_same_tokens(folders):
    target = load_target(folders[0])
    peer, draft = (peers.load_peer(folder) for folder in folders)
    arms = peers.our_arms(target, folders[1], k=3) | peers.transformers_arms(peer, draft, k=3)
    cell = race.run_round(arms, [[1, 2, 3, 1, 2, 3, 1], [4, 5, 4]], 12)
    settings = {"k": 3, "draft": "x", "max_new_tokens": 12, "rounds": 1, "domains": ["loops"]}
    data = peers.summary(settings, {"loops 1": cell})
    (result,) = data["domains"].values()
    assert set(result["ratios"]) == set(peers.PAIRS)
    assert set(result["same_text"].values()) == {2}
    assert "All texts are the same." in peers.table(data)
    assert cell["forwards"]["transformers"] == cell["forwards"]["ours"] == 24
    assert cell["forwards"]["transformers_assisted_k"] < 24
    assert abs(cell["forwards"]["transformers_assisted_k"] - cell["forwards"]["ours_draft"]) <= 2


def test_assisted_generation_starts_every_round_as_it_was_told(folders):
    peer, draft = (peers.load_peer(folder) for folder in folders)
    arms = peers.transformers_arms(peer, draft, k=3)
    seen = []
    draft.register_forward_pre_hook(
        lambda *_: seen.append(
            (
                draft.generation_config.num_assistant_tokens,
                draft.generation_config.assistant_confidence_threshold,
            )
        )
    )
    for name in ("transformers_assisted_k", "transformers_assisted"):
        seen.clear()
        arms[name]([[1, 2, 3]], 6)
        fixed = name.endswith("_k")
        assert (seen[0] == (3, 0.0)) is fixed


def test_a_draft_of_ones_own_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_LAB_DRAFT", str(tmp_path / "mine"))
    assert peers.settings(quick=True)["draft"] == "mine"
