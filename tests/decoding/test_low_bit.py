"""Products with few bits: what they stand for, when they are used, what a copy shares."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specdec_lab.decoding import low_bit
from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.low_bit import (
    FEW_ROWS,
    LowBitLinear,
    drafting_copy,
    low_bit_copy,
    round_to_levels,
)
from specdec_lab.study.overlap import logits_behind
from toys import random_target


def whole(out_features=48, in_features=64, bias=False, dtype=torch.float32) -> PackedLinear:
    """A random product."""
    torch.manual_seed(0)
    return PackedLinear(nn.Linear(in_features, out_features, bias=bias, dtype=dtype))


@pytest.fixture(params=[True, False], ids=["packed", "fallback"])
def packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With torch's operators, and as if it had none."""
    if not request.param:
        monkeypatch.setattr(low_bit, "low_bit_works", lambda bits: False)
    return request.param and low_bit.low_bit_works(4) and low_bit.low_bit_works(8)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("bits", [4, 8])
def test_is_near_the_product_of_the_rounded_weights(packed, bits, rows, bias):
    layer = whole(bias=bias)
    few = LowBitLinear(layer, bits)
    assert few.packed == packed
    rounded = low_bit._rounded(layer.unpacked(), bits)
    for x in (torch.randn(1, rows, 64), torch.randn(rows, 1, 64)):
        expected = F.linear(x, rounded, layer.bias)
        with torch.no_grad():
            torch.testing.assert_close(few(x), expected, atol=0.08, rtol=0)


@pytest.mark.parametrize("bits", [4, 8])
def test_many_rows_use_the_whole_weights(bits):
    layer = whole()
    few = LowBitLinear(layer, bits)
    x = torch.randn(1, FEW_ROWS[bits] + 1, 64)
    assert torch.equal(few(x), layer(x))
    assert not torch.equal(few(x[:, :1]), layer(x[:, :1]))


@pytest.mark.parametrize(
    "layer",
    [whole(40, 64), whole(48, 40), whole(48, 64, dtype=torch.float64)],
    ids=["rows", "columns", "float64"],
)
def test_a_shape_that_does_not_fit_falls_back_to_plain_products(layer):
    few = LowBitLinear(layer, 4)
    x = torch.randn(1, 2, layer.in_features, dtype=layer.unpacked().dtype)
    assert not few.packed
    assert torch.equal(few(x), F.linear(x, low_bit._rounded(layer.unpacked(), 4)))


def test_an_empty_block_and_meta_tensors_pass_through():
    assert LowBitLinear(whole(), 4)(torch.empty(1, 0, 64)).shape == (1, 0, 48)
    meta = LowBitLinear(PackedLinear(nn.Linear(64, 48, device="meta")), 4)
    assert meta(torch.empty(2, 3, 64, device="meta")).shape == (2, 3, 48)


def test_bytes_are_counted():
    assert LowBitLinear(whole(), 8).num_bytes < 48 * 64 * 4 / 3
    assert LowBitLinear(whole(), 4).num_bytes < 48 * 64 * 4 / 5


def test_levels_keep_the_ends_of_every_group():
    weight = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    levels, low, step = round_to_levels(weight, 3, 32)
    assert levels.shape == (6, 2, 32)
    assert levels.amin() == 0
    assert levels.amax() == 7
    error = (low + levels * step).flatten(1) - weight
    assert float(error.abs().max()) <= float(step.max()) / 2 + 1e-6
    with pytest.raises(ValueError, match="group must divide"):
        round_to_levels(weight, 4, 30)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_copy_shares_everything_but_products_and_leaves_the_target_alone(bits):
    target = random_target(dtype=torch.float32)
    ids = [3, 1, 4, 1, 5]
    before = logits_behind(target, ids, 3)
    twin = low_bit_copy(target, bits)
    assert not torch.equal(logits_behind(twin, ids, 3), before)
    assert torch.equal(logits_behind(target, ids, 3), before)
    assert twin.model.embed.weight is target.model.embed.weight
    assert twin.model.norm.weight is target.model.norm.weight
    products = [m for m in twin.model.modules() if isinstance(m, LowBitLinear)]
    assert len(products) == 4 * target.num_layers + 1  # the head included
    assert twin.model.head.whole is target.model.head
    assert {m.bits for m in products if m is not twin.model.head} == {bits}
    assert twin.model.head.bits == 8
    assert copy.deepcopy(twin.model.head) is twin.model.head
    assert twin.name == f"random, int{bits}"


def test_eight_bits_are_nearer_than_four():
    target = random_target(dtype=torch.float32)
    ids = [3, 1, 4, 1, 5]
    apart = [
        float((logits_behind(low_bit_copy(target, bits), ids) - logits_behind(target, ids)).norm())
        for bits in (8, 4)
    ]
    assert 2 * apart[0] < apart[1]


def test_other_bits_are_refused():
    with pytest.raises(ValueError, match="bits must be 4 or 8, not 3"):
        low_bit_copy(random_target(), 3)


def test_what_drafts_has_few_bits_where_torch_can_multiply_them():
    module = nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48))
    rows = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    drafts = drafting_copy(module)
    if low_bit.low_bit_works(8):
        assert isinstance(drafts[0], LowBitLinear)
    torch.testing.assert_close(drafts[0](rows), module[0](rows), atol=0.05, rtol=0)
    assert isinstance(drafting_copy(module.double())[0], PackedLinear)


def test_what_drafts_has_whole_products_elsewhere(whole_products):
    assert isinstance(drafting_copy(nn.Sequential(nn.Linear(64, 48)))[0], PackedLinear)
