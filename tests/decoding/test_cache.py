"""The key/value cache: lengths per row, keep along a path, roll back."""

import pytest
import torch

from specdec_lab.decoding.cache import KEY_BLOCK, KVCache, round_up


def new_cache(batch_size: int = 2, max_length: int = 20) -> KVCache:
    """Two layers, one head of width 1."""
    return KVCache(batch_size, max_length, num_layers=2, num_kv_heads=1, head_dim=1)


def write(cache: KVCache, rows: list[list[float]]) -> None:
    """Write a block of nodes: layer 1 holds ten times what layer 0 holds, values are negative."""
    nodes = torch.tensor(rows, dtype=torch.float)
    places = cache.places(nodes.shape[1])
    for layer, factor in ((0, 1), (1, 10)):
        keys = factor * nodes.flatten()
        cache.write(layer, places, torch.stack((keys, -keys), 1)[..., None])


def held(cache: KVCache, layer: int = 0) -> list[list[float]]:
    """The committed keys of every row, after checking that the values go with them."""
    keys, values = cache.read(layer, cache.num_keys(0) or KEY_BLOCK)
    assert torch.equal(keys, -values)
    lengths = cache.lengths.tolist()
    return [row[0, :n, 0].tolist() for row, n in zip(keys, lengths, strict=True)]


def test_starts_empty_and_zero_filled():
    cache = new_cache()
    assert cache.lengths.tolist() == [0, 0]
    assert cache.capacity == KEY_BLOCK
    assert not cache.entries.any()


def test_rows_of_unequal_length_append_in_place():
    cache = new_cache()
    write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.keep(None, torch.tensor([3, 1]))
    write(cache, [[7, 8], [9, 10]])
    cache.keep(None, torch.tensor([1, 2]))
    assert held(cache) == [[1, 2, 3, 7], [4, 9, 10]]
    assert held(cache, layer=1) == [[10, 20, 30, 70], [40, 90, 100]]


def test_keeping_nothing_leaves_a_row_as_it_was():
    cache = new_cache()
    write(cache, [[1, 2], [3, 4]])
    cache.keep(None, torch.tensor([2, 2]))
    write(cache, [[5, 6], [7, 8]])
    cache.keep(None, torch.tensor([0, 1]))
    assert held(cache) == [[1, 2], [3, 4, 7]]


def test_case_24_a_path_is_gathered_not_cut():
    cache = new_cache()
    write(cache, [[1], [1]])
    cache.keep(None, torch.tensor([1, 1]))
    write(cache, [[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]])  # a pending token, nodes 0..3
    cache.keep(torch.tensor([[0, 2, 3], [3, 9, 9]]), torch.tensor([4, 2]))
    assert held(cache) == [[1, 10, 11, 13, 14], [1, 20, 24]]
    assert held(cache, layer=1) == [[10, 100, 110, 130, 140], [10, 200, 240]]


def test_a_path_moves_nothing_in_a_row_that_keeps_nothing():
    cache = new_cache()
    write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.keep(torch.tensor([[1], [1]]), torch.tensor([0, 2]))
    assert held(cache) == [[], [4, 6]]


@pytest.mark.parametrize("kept", range(6))
def test_case_21_the_length_is_right_for_every_number_of_accepted_tokens(kept):
    """n = 7 tokens, 6 in the cache; k = 5: the pass writes 6 entries and all but 5 - a stay."""
    cache = new_cache(1)
    write(cache, [[float(i) for i in range(6)]])
    cache.keep(None, torch.tensor([6]))
    write(cache, [[float(i) for i in range(6, 12)]])
    cache.keep(None, torch.tensor([kept + 1]))
    assert held(cache) == [[float(i) for i in range(7 + kept)]]


@pytest.mark.parametrize(
    ("asked", "left"), [([3, 3], [3, 3]), ([0, 1], [0, 1]), ([-2, 9], [0, 3]), ([2, 0], [2, 0])]
)
def test_case_22_rolling_back_is_exact(asked, left):
    cache = new_cache()
    write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.keep(None, torch.tensor([3, 3]))
    cache.roll_back(torch.tensor(asked))
    assert cache.lengths.tolist() == left
    write(cache, [[7], [8]])
    cache.keep(None, torch.tensor([1, 1]))
    assert held(cache) == [[*[1, 2, 3][: left[0]], 7], [*[4, 5, 6][: left[1]], 8]]


def test_what_lies_beyond_the_capacity_touches_no_other_row():
    cache = new_cache(2, KEY_BLOCK)
    cache.lengths = torch.tensor([KEY_BLOCK - 1, 0])
    write(cache, [[1, 2, 3], [4, 5, 6]])
    keys, _ = cache.read(0, KEY_BLOCK)
    assert keys[0, 0, -1, 0] == 1
    assert keys[1, 0, :3, 0].tolist() == [4, 5, 6]


def test_the_bound_on_the_length_grows_with_each_step_and_can_be_lowered():
    cache = new_cache(1, 2000)
    assert cache.num_keys(5) == KEY_BLOCK
    write(cache, [[1.0] * 600])
    cache.keep(None, torch.tensor([600]))
    assert (cache.max_used, cache.num_keys(1)) == (600, 2 * KEY_BLOCK)
    write(cache, [[1.0] * 500])
    cache.keep(None, torch.tensor([1]))
    assert (cache.max_used, cache.num_keys(1)) == (1100, 3 * KEY_BLOCK)
    cache.settle(601)
    assert (cache.max_used, cache.num_keys(1)) == (601, 2 * KEY_BLOCK)


def test_few_keys_are_read_in_rungs_where_they_are_allowed():
    cache = new_cache(1, 2000)
    cache.rungs = (64, 192)
    for used, keys in ((60, 64), (62, 192), (189, 192), (190, KEY_BLOCK), (510, 2 * KEY_BLOCK)):
        cache.max_used = used
        assert cache.num_keys(3) == keys
    assert cache.for_drafts() is cache
    assert [cache.num_keys(n) for n in (1, 2, 66, 67)] == [KEY_BLOCK, KEY_BLOCK, 576, 640]
    cache.max_used = cache.capacity
    assert cache.num_keys(9) == cache.capacity


def test_a_shared_cache_has_the_same_entries_and_lengths_of_its_own():
    cache = new_cache()
    write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.keep(None, torch.tensor([3, 1]))
    second = cache.shared()
    write(second, [[7, 8], [9, 9]])
    second.keep(None, torch.tensor([2, 1]))
    assert held(second) == [[1, 2, 3, 7, 8], [4, 9]]
    assert held(cache) == [[1, 2, 3], [4]]
    write(cache, [[0], [0]])  # where the other one wrote
    assert held(second) == [[1, 2, 3, 0, 8], [4, 0]]


@pytest.mark.parametrize("length", [-1, KEY_BLOCK + 1])
def test_a_length_that_does_not_fit_is_an_error(length):
    with pytest.raises(ValueError, match="start it with a larger max_length"):
        new_cache().settle(length)


def test_round_up():
    assert [round_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]
