"""Files of answers: small, whole or absent, and read back as written."""

from dataclasses import replace

import pytest

from specdec_lab.training.recipes import Passage, Recipe
from specdec_lab.training.shards import Entry, Shard, ids_crc, read_folder, read_shard, write_shard


def entry(tokens, number=0):
    """An answer to a prompt about a passage."""
    recipe = Recipe("chat", "tr", f"doc {number}", ("ş ", Passage("s", "d", number, 2)), ("«",))
    return Entry(recipe, 0.7, 4, ids_crc([1, 2, 3, 49151]), "eos", tokens)


ABOUT = {"seconds": 1.5, "products": "float32"}


def test_a_shard_is_read_as_it_was_written(tmp_path):
    shard = Shard([entry([1, 65535, 3]), entry([], 1), entry([7], 2)], ABOUT)
    write_shard(tmp_path / "00000.npz", shard)
    assert read_shard(tmp_path / "00000.npz") == shard


def test_an_empty_shard_is_one(tmp_path):
    write_shard(tmp_path / "00000.npz", Shard([], ABOUT))
    assert read_shard(tmp_path / "00000.npz").entries == []


def test_a_token_takes_about_two_bytes(tmp_path):
    many = [entry(list(range(i, i + 200)), i) for i in range(0, 40000, 200)]
    write_shard(tmp_path / "00000.npz", Shard(many, ABOUT))
    assert (tmp_path / "00000.npz").stat().st_size < 2.5 * 40000


def test_ids_beyond_sixteen_bits_are_refused(tmp_path):
    with pytest.raises(ValueError, match="up to 65535"):
        write_shard(tmp_path / "00000.npz", Shard([entry([70000])], ABOUT))


def test_a_damaged_file_is_said_to_be_one(tmp_path):
    path = tmp_path / "00000.npz"
    write_shard(path, Shard([entry([1, 2, 3])], ABOUT))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(OSError, match="is damaged"):
        read_shard(path)


def test_what_was_half_written_is_no_shard(tmp_path):
    write_shard(tmp_path / "00000.npz", Shard([entry([1])], ABOUT))
    (tmp_path / "00001.part").write_bytes(b"PK half of a file")
    assert len(read_folder(tmp_path)) == 1


def test_one_file_stands_for_itself(tmp_path):
    for number in (1, 2):
        write_shard(tmp_path / f"{number}.npz", Shard([entry([number])], ABOUT))
    (shard,) = read_folder(tmp_path / "2.npz")
    assert shard.entries[0].tokens == [2]


def test_loops_are_told_from_texts():
    assert entry([1, 2, 3, 4] * 10).is_loop
    assert not entry(list(range(60))).is_loop


@pytest.mark.parametrize(
    ("domain", "finish", "loop"),
    [("chat", "length", True), ("chat", "eos", False), ("json", "length", False)],
)
def test_records_and_answers_that_end_may_repeat_more(domain, finish, loop):
    some = entry([*range(60), *[1, 2, 3, 4] * 12])  # 0.42 of its 4-grams were there before
    told = replace(some, recipe=replace(some.recipe, domain=domain), finish=finish)
    assert told.is_loop == loop
