"""Target: batches, prefill, what runs on device meta, and how mismatches are classified."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from specdec_lab.decoding import target as target_module
from specdec_lab.decoding.checkpoint import target_from_hf, transformer_from_hf
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.target import Target, classify_mismatch, probe_rows

VOCAB = 61


def random_target(dtype: torch.dtype = torch.float64, **options: int) -> Target:
    """A llama of two layers with lively weights."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        "eos_token_id": [2, 5],
    }
    return target_from_hf(AutoModelForCausalLM.from_config(LlamaConfig(**shape), dtype=dtype))


@pytest.fixture(scope="module")
def target() -> Target:
    """In float64."""
    return random_target()


def ids(*shape: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(VOCAB, shape)


def full(tokens: torch.Tensor) -> torch.Tensor:
    """All of every row is meant."""
    return torch.full((len(tokens),), tokens.shape[1])


def test_describes_the_model(target):
    assert (target.vocab_size, target.hidden_size, target.num_layers) == (VOCAB, 48, 2)
    assert target.eos_ids == (2, 5)
    assert (target.dtype, target.device.type) == (torch.float64, "cpu")


def test_a_batch_of_unequal_prompts_equals_each_alone(target):
    prompts = [ids(n) for n in (1, 4, 0, 9)]
    tokens = torch.zeros(4, 9, dtype=torch.long)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    counts = torch.tensor([len(p) for p in prompts])
    nodes = ids(4, 5)
    counted = torch.tensor([4, 0, 2, 3])  # drafted tokens that are meant
    cache = target.start(4, 32)
    before = target.prefill(cache, tokens, counts, (1,))[1]
    scores = target.score(cache, nodes[:, 0], Draft(nodes[:, 1:], counted), (2,))
    for b, prompt in enumerate(prompts):
        alone = target.start(1, 32)
        states = target.prefill(alone, prompt[None], counts[b : b + 1], (1,))[1]
        draft = Draft(nodes[b : b + 1, 1 : counted[b] + 1], counted[b : b + 1])
        expected = target.score(alone, nodes[b : b + 1, 0], draft, (2,))
        meant = int(counted[b]) + 1
        torch.testing.assert_close(before[b, : counts[b]], states[0], atol=1e-9, rtol=0)
        torch.testing.assert_close(scores.logits[b, :meant], expected.logits[0], atol=1e-9, rtol=0)
        torch.testing.assert_close(
            scores.hidden[2][b, :meant], expected.hidden[2][0], atol=1e-9, rtol=0
        )


def test_prefill_in_blocks_equals_one_block(target, monkeypatch):
    tokens = ids(2, 50)
    whole, blocks = target.start(2, 64), target.start(2, 64)
    expected = target.prefill(whole, tokens, torch.tensor([50, 33]), (0, 2))
    monkeypatch.setattr(target_module, "PREFILL_BLOCK", 16)
    states = target.prefill(blocks, tokens, torch.tensor([50, 33]), (0, 2))
    for layer in (0, 2):
        assert states[layer].shape == (2, 50, 48)
        torch.testing.assert_close(states[layer], expected[layer], atol=1e-9, rtol=0)
    torch.testing.assert_close(blocks.entries, whole.entries, atol=1e-9, rtol=0)
    assert blocks.lengths.tolist() == [50, 33]


def test_an_empty_prefill(target):
    cache = target.start(2, 8)
    states = target.prefill(cache, ids(2, 0), torch.tensor([0, 0]), (0,))
    assert states[0].shape == (2, 0, 48)
    assert cache.lengths.tolist() == [0, 0]
    assert target.score(cache, ids(2), Draft.empty(2)).logits.shape == (2, 1, VOCAB)


def test_scoring_leaves_the_lengths_alone_and_can_be_repeated(target):
    cache, nodes = target.start(1, 16), ids(1, 4)
    target.prefill(cache, ids(1, 6), torch.tensor([6]))
    first = target.score(cache, nodes[:, 0], Draft(nodes[:, 1:], full(nodes) - 1)).logits
    other = ids(1, 8)
    target.score(cache, other[:, 0], Draft(other[:, 1:], full(other) - 1))
    again = target.score(cache, nodes[:, 0], Draft(nodes[:, 1:], full(nodes) - 1)).logits
    assert torch.equal(first, again)
    assert cache.lengths.tolist() == [6]


def test_two_streams_interleave(target):
    first, second = target.start(1, 16), target.start(1, 16)
    prompts = ids(1, 5), ids(1, 3)
    nodes = ids(1)
    target.prefill(first, prompts[0], torch.tensor([5]))
    alone = target.score(first, nodes, Draft.empty(1)).logits
    target.prefill(second, prompts[1], torch.tensor([3]))
    target.score(second, nodes, Draft.empty(1))
    assert torch.equal(alone, target.score(first, nodes, Draft.empty(1)).logits)


def test_a_whole_step_reads_nothing_from_the_device():
    meta = torch.device("meta")
    transformer = transformer_from_hf(
        AutoModelForCausalLM.from_config(LlamaConfig(hidden_size=64, num_hidden_layers=2))
    )
    target = Target(transformer.to(meta), max_context=2048)
    cache = target.start(3, 900)
    long = {"dtype": torch.long, "device": meta}
    prompt, counts = torch.empty(3, 300, **long), torch.empty(3, **long)
    states = target.prefill(cache, prompt, counts, (0, 2))
    assert states[2].shape == (3, 300, 64)
    for _ in range(3):
        draft = Draft(torch.empty(3, 4, **long), torch.empty(3, **long))
        scores = target.score(cache, torch.empty(3, **long), draft, (1,))
        assert scores.logits.shape == (3, 5, target.vocab_size)
        target.keep(cache, None, counts)
    target.keep(cache, torch.empty(3, 2, **long), counts)
    cache.roll_back(counts)


def test_text_needs_a_tokenizer(target):
    for call in (lambda: target.encode("a"), lambda: target.encode_chat("a")):
        with pytest.raises(ValueError, match="has no tokenizer"):
            call()


def test_the_probe_names_every_case_and_holds_for_a_small_model():
    results = probe_rows(random_target(torch.float32), widths=(2, 5, 33))
    assert list(results) == ["2 nodes", "5 nodes", "33 nodes", "prefill", "16 unequal rows"]
    assert all(isinstance(holds, bool) for holds in results.values())


def test_the_probe_sees_a_row_that_depends_on_its_company(monkeypatch):
    target = random_target(torch.float32)
    score = target.score

    def noisy(cache, pending, draft, hidden_layers=()):
        scores = score(cache, pending, draft, hidden_layers)
        return type(scores)(scores.logits + 1e-5 * draft.tokens.shape[1], scores.hidden)

    monkeypatch.setattr(target, "score", noisy)
    results = probe_rows(target, widths=(2, 5))
    assert not results["2 nodes"]
    assert not results["5 nodes"]


def test_mismatches_are_classified(target):
    prompt = ids(6).tolist()
    cache = target.start(1, 16)
    target.prefill(cache, torch.tensor([prompt[:-1]]), torch.tensor([5]))
    logits = target.score(cache, torch.tensor(prompt[-1:]), Draft.empty(1)).logits[0, 0]
    first, second = logits.topk(2).indices.tolist()
    gap = float(logits[first] - logits[second])
    assert classify_mismatch(target, prompt, [first, 1], [first, 1]) == "equal"
    assert classify_mismatch(target, prompt, [first, 1], [second, 2], gap=2 * gap) == "tie"
    assert classify_mismatch(target, prompt, [first, 1], [second, 2], gap=gap / 2) == "bug"
    assert classify_mismatch(target, prompt, [first, 1], [first]) == "bug"
