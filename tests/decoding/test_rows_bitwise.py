"""On the real model: a token's logits do not depend, bit for bit, on what was scored with it."""

import pytest
import torch

from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.linear import packing_works
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.target import Target, probe_rows

pytestmark = pytest.mark.model

WIDTHS = [*range(1, 34), 48, 80, 128, 512]


@pytest.fixture(scope="module")
def target() -> Target:
    """The default model."""
    return load_target()


@pytest.fixture(scope="module")
def rows_hold() -> bool:
    """Whether this machine has the packed product that bit-identical rows rest on."""
    return packing_works()


@pytest.mark.parametrize(("context", "widths"), [(60, WIDTHS), (500, [2, 5, 17]), (1020, [5, 9])])
def test_rows_prefill_and_batches_are_bit_identical(target, rows_hold, context, widths):
    results = probe_rows(target, widths, context)
    broken = [case for case, holds in results.items() if not holds]
    assert broken == [] or not rows_hold, f"not bit-identical on this machine: {broken}"


def test_a_long_neighbour_changes_no_bit(target, rows_hold):
    """Its keys fill two blocks, so every row reads two; the others alone read one."""
    torch.manual_seed(0)
    tokens, nodes = torch.randint(49152, (3, 600)), torch.randint(49152, (3, 5))
    counts = torch.tensor([600, 40, 300])
    draft = Draft(nodes[:, 1:], torch.tensor([4, 4, 4]))
    cache = target.start(3, 640)
    target.prefill(cache, tokens, counts)
    together = target.score(cache, nodes[:, 0], draft).logits
    for b in range(3):
        row = slice(b, b + 1)
        alone = target.start(1, 640)
        target.prefill(alone, tokens[row, : counts[b]], counts[row])
        logits = target.score(alone, nodes[row, 0], Draft(nodes[row, 1:], draft.count[row])).logits
        assert torch.equal(logits, together[row]) or not rows_hold


def test_the_rows_also_hold_with_one_thread(target, rows_hold):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = probe_rows(target, (5, 17))
    finally:
        torch.set_num_threads(threads)
    assert all(results.values()) or not rows_hold, results
