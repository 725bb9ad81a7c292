"""Products for few rows: packed, fallback and plain agree, and rows do not know each other."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specdec_lab.decoding import linear
from specdec_lab.decoding.linear import PackedLinear, packed_copy, packing_works

SHAPES = [(96, 48), (576, 1536), (32, 32)]  # (out, in)


def ordinary(out_features: int, in_features: int, bias: bool, dtype=torch.float32) -> nn.Linear:
    """A random layer."""
    torch.manual_seed(0)
    return nn.Linear(in_features, out_features, bias=bias, dtype=dtype)


@pytest.fixture(params=[True, False], ids=["packed", "fallback"])
def packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With the packed operators, and as if torch had none."""
    if not request.param:
        monkeypatch.setattr(linear, "packing_works", lambda: False)
    return request.param and packing_works()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_equals_the_ordinary_product(packed, shape, rows, bias):
    layer = ordinary(*shape, bias)
    fast = PackedLinear(layer)
    assert fast.packed == packed
    for x in (torch.randn(1, rows, shape[1]), torch.randn(rows, 1, shape[1])):
        with torch.no_grad():
            torch.testing.assert_close(fast(x), layer(x), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_use_the_plain_product(dtype):
    layer = ordinary(96, 48, True, dtype)
    fast = PackedLinear(layer)
    x = torch.randn(1, 5, 48, dtype=dtype)
    assert not fast.packed
    assert torch.equal(fast(x), F.linear(x, layer.weight, layer.bias))


def test_meta_tensors_pass_through():
    fast = PackedLinear(nn.Linear(48, 96, device="meta"))
    assert fast(torch.empty(2, 3, 48, device="meta")).shape == (2, 3, 96)


def test_an_empty_block_of_rows():
    assert PackedLinear(ordinary(96, 48, False))(torch.empty(1, 0, 48)).shape == (1, 0, 96)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_bitwise_the_same_in_any_company(shape):
    if not packing_works():
        pytest.skip("this build of torch has no packed product")
    fast = PackedLinear(ordinary(*shape, False))
    x = torch.randn(1, 64, shape[1])
    whole = fast(x)
    for rows in range(1, 34):
        assert torch.equal(fast(x[:, :rows]), whole[:, :rows]), rows


@pytest.mark.skipif(not packing_works(), reason="this build of torch has no packed product")
@pytest.mark.parametrize("faster", [True, False])
def test_a_lone_row_is_filled_where_that_is_faster_here(monkeypatch, faster):
    timed = []

    def seconds(products, fills):
        timed.append({(p.in_features, p.out_features) for p in products})
        return 1.0 if fills == faster else 2.0

    monkeypatch.setattr(linear, "_seconds", seconds)
    shapes = [(64, 32), (64, 32), (32, 96)]
    fast = packed_copy(nn.Sequential(*(ordinary(out, width, False) for width, out in shapes)))
    free = [p for p in fast if p._few_rows_agree()]
    assert [p.fills_tile for p in free] == [faster] * len(free)
    assert all(len(shape) == 1 for shape in timed)  # the products of one shape, together
    assert all(p.fills_tile for p in fast if p not in free)


@pytest.mark.skipif(not packing_works(), reason="this build of torch has no packed product")
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_where_bits_ask_for_whole_tiles_time_has_no_say(monkeypatch, rows):
    whole = linear._packed_product

    def another_order(x, packed, bias):
        found = whole(x, packed, bias)
        return found * (1 + 1e-6) if x[..., 0].numel() == rows else found

    monkeypatch.setattr(linear, "_packed_product", another_order)
    monkeypatch.setattr(linear, "_seconds", lambda products, fills: float(fills))
    (fast,) = packed_copy(nn.Sequential(ordinary(96, 48, False)))
    assert fast.fills_tile
    x = torch.randn(7, 48)
    for n in range(1, 7):
        assert torch.equal(fast(x[:n]), fast(x)[:n])


def test_a_build_without_the_operators_is_recognised(monkeypatch):
    def missing(*_: object) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(linear, "_pack", missing)
    assert not packing_works.__wrapped__()


def test_operators_that_compute_something_else_are_refused(monkeypatch):
    monkeypatch.setattr(linear, "_packed_product", lambda x, *_: torch.zeros(*x.shape[:-1], 48))
    assert not packing_works.__wrapped__()


def test_the_unpacked_weight_is_let_go():
    layer = ordinary(96, 48, False)
    fast = PackedLinear(layer)
    assert not list(fast.parameters())
    assert fast.weight is not layer.weight
