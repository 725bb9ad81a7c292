"""The lean decoder against transformers on small random models, and its cache-free form."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from specdec_lab.decoding import transformer as transformer_module
from specdec_lab.decoding.cache import KEY_BLOCK
from specdec_lab.decoding.checkpoint import target_from_hf, transformer_from_hf
from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.transformer import key_rungs, query_tile
from toys import random_target

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "attn_implementation": "sdpa",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama, biases": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "llama, rope of 3.1": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama, yarn": LlamaConfig(**SHAPE, rope_parameters=YARN),
    "mistral": MistralConfig(**SHAPE, head_dim=16, sliding_window=None),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=12),
}


def oracle(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A random transformers model; in float64 its norms, which round to float32, are made whole."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
        else:
            nn.init.normal_(parameter, std=0.2)
    if dtype == torch.float64:
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = whole_norm(module)
    return model


def whole_norm(module: nn.Module):
    """RMSNorm in the precision of its input."""
    weight, eps = module.weight, module.variance_epsilon
    return lambda x: F.rms_norm(x, weight.shape, weight, eps)


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys(), scope="module")
def config(request: pytest.FixtureRequest) -> PreTrainedConfig:
    """Each supported shape in turn."""
    return request.param


@pytest.fixture(params=[(torch.float64, 1e-9), (torch.float32, 1e-3)], ids=["64", "32"])
def precision(request: pytest.FixtureRequest) -> tuple[torch.dtype, float]:
    """A dtype and how near the logits must be."""
    return request.param


def logits_of(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """The oracle's logits for rows of ids, (B, N, V)."""
    with torch.no_grad():
        return model(ids).logits


def chain(tokens: torch.Tensor, count: list[int] | None = None) -> Draft:
    """A draft of these tokens, all of them meant unless ``count`` says less."""
    full = [tokens.shape[1]] * len(tokens)
    return Draft(tokens, torch.tensor(full if count is None else count))


def test_one_forward_equals_transformers(config, precision):
    dtype, near = precision
    model = oracle(config, dtype)
    target = target_from_hf(model)
    ids = torch.randint(61, (2, 40))
    cache = target.start(2, 64)
    scores = target.score(cache, ids[:, 0], chain(ids[:, 1:]))
    torch.testing.assert_close(scores.logits, logits_of(model, ids), atol=near, rtol=0)


def test_prefill_and_steps_with_refusals_equal_transformers(config, precision):
    dtype, near = precision
    model = oracle(config, dtype)
    target = target_from_hf(model)
    rows = [torch.randint(61, (n,)) for n in (3, 1, 9)]
    cache = prefilled(target, rows)
    for kept in ([1, 3, 5], [4, 1, 2], [5, 5, 0], [1, 1, 1]):
        drafted = torch.randint(61, (3, 4))
        pending = torch.stack([row[-1] for row in rows])
        logits = target.score(cache, pending, chain(drafted)).logits
        for b, row in enumerate(rows):
            expected = logits_of(model, torch.cat((row, drafted[b]))[None])[0, -5:]
            torch.testing.assert_close(logits[b], expected, atol=near, rtol=0)
        target.keep(cache, None, torch.tensor(kept))
        for b, count in enumerate(kept):
            if count:
                rows[b] = torch.cat((rows[b], drafted[b, : count - 1], torch.randint(61, (1,))))
        assert cache.lengths.tolist() == [len(row) - 1 for row in rows]
        cache.settle(max(len(row) for row in rows) - 1)


def prefilled(target: Target, rows: list[torch.Tensor]):
    """A cache that holds all of each row but its last token, which is pending."""
    counts = torch.tensor([len(row) - 1 for row in rows])
    tokens = torch.full((len(rows), int(counts.max())), 10**6)  # foreign ids where nothing is meant
    for row, count, filled in zip(rows, counts, tokens, strict=True):
        filled[:count] = row[:count]
    cache = target.start(len(rows), 128)
    target.prefill(cache, tokens, counts)
    return cache


def test_hidden_states_are_those_of_transformers(config):
    model = oracle(config, torch.float64)
    target = target_from_hf(model)
    ids = torch.randint(61, (2, 12))
    with torch.no_grad():
        theirs = model(ids, output_hidden_states=True).hidden_states
    layers = (0, 1, 3)
    cache = target.start(2, 16)
    before = target.prefill(cache, ids[:, :7], torch.tensor([7, 7]), layers)
    after = target.score(cache, ids[:, 7], chain(ids[:, 8:]), layers).hidden
    assert list(before) == list(layers) == list(after)
    for layer in layers:
        ours = torch.cat((before[layer], after[layer]), dim=1)
        torch.testing.assert_close(ours, theirs[layer], atol=1e-9, rtol=0)


def test_the_unpacked_model_reads_a_whole_text_and_can_be_trained():
    model = oracle(CONFIGS["qwen3"], torch.float32)
    ids = torch.randint(61, (2, 20))
    transformer = transformer_from_hf(model)
    states, _ = transformer(ids)
    logits = transformer.head(states)
    torch.testing.assert_close(logits, logits_of(model, ids), atol=1e-3, rtol=0)
    logits.logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in transformer.parameters())


def test_packing_copies_the_form_and_shares_the_rest():
    transformer = transformer_from_hf(oracle(CONFIGS["llama"], torch.float32))
    fast = transformer.pack()
    assert isinstance(fast.layers[0].mlp.down, PackedLinear)
    assert isinstance(transformer.layers[0].mlp.down, nn.Linear)
    assert fast.embed.weight is transformer.embed.weight
    ids = torch.randint(61, (1, 8))
    with torch.no_grad():
        torch.testing.assert_close(fast(ids)[0], transformer(ids)[0], atol=1e-4, rtol=0)


def test_bfloat16_keeps_its_rotary_frequencies_whole():
    model = oracle(CONFIGS["llama"], torch.bfloat16)
    target = target_from_hf(model)
    ids = torch.randint(61, (1, 200))
    logits = target.score(target.start(1, 256), ids[:, 0], chain(ids[:, 1:])).logits
    assert logits.dtype == torch.bfloat16
    expected = logits_of(model.float(), ids)
    error = (logits.float() - expected).abs().mean() / expected.abs().mean()
    assert error < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_rung_of_keys_gives_a_row_the_bits_of_a_whole_block(seed):
    torch.manual_seed(seed)
    tile = query_tile(64)
    queries, keys, values = torch.randn(3, 2, 3, KEY_BLOCK, 64)
    rungs = key_rungs(64)
    assert set(rungs) <= set(transformer_module.RUNGS)
    for rung in rungs:
        used = int(torch.randint(1, rung + 1, ()))
        found = []
        for rows, num_keys in ((tile, KEY_BLOCK), (tile, rung), (5 * tile, rung), (384, rung)):
            mask = torch.zeros(rows, num_keys)
            mask[:, used:] = -torch.inf
            seen = queries[:, :, :rows], keys[:, :, :num_keys], values[:, :, :num_keys]
            found.append(F.scaled_dot_product_attention(*seen, attn_mask=mask)[:, :, :tile])
        assert all(torch.equal(found[0], other) for other in found[1:]), (rung, used)


def test_rungs_that_change_a_bit_are_left_out(monkeypatch):
    right = transformer_module._attend_randomly

    def by_number_of_keys(head_dim, visible):
        off = 1e-7 if visible.shape[1] == 128 else 0
        return right(head_dim, visible) + off

    monkeypatch.setattr(transformer_module, "_attend_randomly", by_number_of_keys)
    assert 128 not in key_rungs.__wrapped__(64)
    cache = random_target(dtype=torch.float64).start(1, 600)
    assert cache.num_keys(3) == KEY_BLOCK  # no rows of this precision need to be alike


def test_the_smallest_padding_that_holds_is_taken(monkeypatch):
    assert query_tile(64) in transformer_module.TILES
    monkeypatch.setattr(transformer_module, "_rows_agree", lambda tile, head_dim: tile >= 16)
    assert query_tile.__wrapped__(64) == 16
    monkeypatch.setattr(transformer_module, "_rows_agree", lambda tile, head_dim: False)
    assert query_tile.__wrapped__(64) == 32
