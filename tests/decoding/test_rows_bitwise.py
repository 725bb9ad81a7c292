"""On the real model: a token's logits do not depend, bit for bit, on what was scored with it."""

import pytest
import torch

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.linear import packing_works
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.target import Target, probe_rows, probe_threads

pytestmark = pytest.mark.model

WIDTHS = [*range(1, 34), 48, 80, 128]


@pytest.fixture(scope="module")
def target(default_model) -> Target:
    return default_model


@pytest.fixture(scope="module")
def rows_hold() -> bool:
    """Whether this machine has the packed product that bit-identical rows rest on."""
    return packing_works()


@pytest.mark.parametrize(
    ("context", "widths"),
    [(60, WIDTHS), (120, [5, 9]), (185, [5, 17]), (250, [5]), (500, [2, 5, 17]), (1020, [5, 9])],
)
def test_rows_prefill_and_batches_are_bit_identical(target, rows_hold, context, widths):
    results = probe_rows(target, widths, context)
    broken = [case for case, holds in results.items() if not holds]
    assert broken == [] or not rows_hold, f"not bit-identical on this machine: {broken}"


def test_512_nodes_equal_four_times_128(target, rows_hold):
    """128 at a time equal single steps (above), so 512 do too."""
    torch.manual_seed(0)
    nodes, cache = torch.randint(49152, (1, 572)), target.start(1, 640)
    target.prefill(cache, nodes[:, :60], torch.tensor([60]))
    whole = score(target, cache, nodes[:, 60:])
    for start in range(60, 572, 128):
        part = score(target, cache, nodes[:, start : start + 128])
        assert torch.equal(part, whole[:, start - 60 : start + 68]) or not rows_hold
        target.keep(cache, None, torch.tensor([128]))


def score(target: Target, cache: KVCache, nodes: torch.Tensor) -> torch.Tensor:
    """Logits of a chain, (B, N, V)."""
    draft = Draft(nodes[:, 1:], torch.full((len(nodes),), nodes.shape[1] - 1))
    return target.score(cache, nodes[:, 0], draft).logits


def test_a_long_neighbour_changes_no_bit(target, rows_hold):
    """Its keys fill two blocks, so every row reads two; the others alone read one."""
    torch.manual_seed(0)
    tokens, nodes = torch.randint(49152, (3, 600)), torch.randint(49152, (3, 5))
    counts = torch.tensor([600, 40, 300])
    cache = target.start(3, 640)
    target.prefill(cache, tokens, counts)
    together = score(target, cache, nodes)
    for b in range(3):
        row = slice(b, b + 1)
        alone = target.start(1, 640)
        target.prefill(alone, tokens[row, : counts[b]], counts[row])
        assert torch.equal(score(target, alone, nodes[row]), together[row]) or not rows_hold


def test_the_rows_also_hold_with_one_thread(target, rows_hold):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = probe_rows(target, (5, 17))
    finally:
        torch.set_num_threads(threads)
    assert all(results.values()) or not rows_hold, results


@pytest.mark.parametrize("number", [2, 3])
def test_more_threads_compute_what_one_computes(target, rows_hold, number):
    threads = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        same = probe_threads(target)
    finally:
        torch.set_num_threads(threads)
    assert same or not rows_hold
