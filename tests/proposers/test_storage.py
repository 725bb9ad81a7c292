"""Few bits a weight: whole numbers come back whole, floating ones nearly."""

import pytest
import torch

from specdec_lab.proposers.storage import SIX_BITS, STORAGES, loaded, shape_of, stored


def bits(written, tensor):
    return 8 * sum(t.numel() * t.element_size() for t in written.values()) / tensor.numel()


@pytest.mark.parametrize(
    ("storage", "most_bits", "error"),
    [("float16", 16, 3e-4), ("int8", 8.1, 1e-2), ("int6", 6.3, 3e-2)],
)
def test_a_matrix_comes_back_nearly(storage, most_bits, error):
    matrix = torch.randn(50, 576, generator=torch.Generator().manual_seed(0)) * 0.02
    written = stored("w", matrix, storage)
    assert bits(written, matrix) <= most_bits
    assert (loaded("w", written) - matrix).norm() < error * matrix.norm()


def test_six_bits_are_exact_on_their_levels():
    levels = torch.randint(-SIX_BITS, SIX_BITS + 1, (7, 128)).float()
    levels[:, ::64] = SIX_BITS
    assert torch.equal(loaded("w", stored("w", levels / 4, "int6")), levels / 4)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "tensor", [torch.arange(9), torch.linspace(-1, 1, 7), torch.zeros(2, 64), torch.ones(3, 5)]
)
def test_everything_else_keeps_its_shape_and_kind(storage, tensor):
    back = loaded("t", stored("t", tensor, storage))
    assert back.shape == tensor.shape
    assert back.is_floating_point() == tensor.is_floating_point()
    torch.testing.assert_close(back, tensor, atol=1e-2, rtol=0)


def test_a_header_tells_the_shape():
    assert shape_of("U8", [10, 48]) == [10, 64]
    assert shape_of("I8", [10, 48]) == [10, 48]
