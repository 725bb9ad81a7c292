"""The global history of suffix decoding: budgets, eviction, files, and the suffix array itself.

pytest tests/proposers/test_suffix_history.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from specdec_lab.proposers.suffix import Suffix
from specdec_lab.proposers.suffix_history import History, Index


def history_of(texts: list[list[int]], **budgets: int) -> History:
    """A history that was told some texts."""
    history = History(**budgets)
    for text in texts:
        history.remember(text)
    return history


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=5),
    depth=st.integers(1, 6),
)
def test_the_array_sorts_the_places_by_their_past_read_backwards(texts, depth):
    index = Index.build([torch.tensor(text) for text in texts], depth)
    text = index.text.tolist()
    expected = [p for p in range(len(text) - 1) if text[p] >= 0 and text[p + 1] >= 0]
    assert index.depth >= depth
    past = {p: [text[q] if q >= 0 else -1 for q in range(p, p - index.depth, -1)] for p in expected}
    assert sorted(index.order.tolist()) == expected
    assert [past[p] for p in index.order.tolist()] == sorted(past.values())


def test_the_oldest_texts_go_first():
    history = history_of([[1] * 4, [2] * 4, [3] * 4], max_tokens=11)
    assert history.texts == [[2] * 4, [3] * 4]
    assert history.num_tokens == 8
    assert history_of([[1], [2], [3]], max_requests=2).texts == [[2], [3]]


def test_a_quarter_of_the_budget_goes_at_once():
    texts = [[n] * 4 for n in range(6)]
    assert history_of(texts, max_tokens=20).texts == texts[3:]
    assert history_of(texts, max_requests=5).texts == texts[2:]


def test_of_a_text_beyond_the_budget_the_end_stays():
    assert history_of([[1, 2, 3, 4, 5]], max_tokens=3).texts == [[3, 4, 5]]


@pytest.mark.parametrize("budgets", [{"max_tokens": 0}, {"max_requests": 0}])
def test_a_budget_of_0_keeps_nothing(budgets):
    history = history_of([[1, 2, 3]], **budgets)
    assert (history.texts, history.num_tokens, history.index(3)) == ([], 0, None)


def test_an_empty_text_is_no_text():
    assert history_of([[], [1]]).texts == [[1]]


@pytest.mark.parametrize("text", [[[1, 2]], [1, -1], [2**21], 5])
def test_what_is_no_text_gets_a_sentence(text):
    with pytest.raises(ValueError, match="must be one list of ids"):
        History().remember(text)


def test_the_index_is_kept_until_a_text_comes():
    history = history_of([[1, 2]])
    first = history.index(3)
    assert history.index(3) is first
    history.remember([3, 4])
    assert history.index(3).order.tolist() == [1, 4]


def test_texts_of_one_token_have_no_place():
    assert history_of([[1], [2]]).index(3) is None
    index = history_of([[1], [2, 3]]).index(3)
    places, matched = index.find(torch.tensor([[1, -2, -2]]), 4)
    assert places.shape == matched.shape == (1, 4)
    assert matched.sum() == 0


def test_a_history_saves_and_loads(tmp_path):
    path = tmp_path / "history.safetensors"
    history_of([[1, 2, 3], [40_000, 5]]).save(path)
    assert History.load(path).texts == [[1, 2, 3], [40_000, 5]]
    assert History.load(path, max_tokens=2).texts == [[40_000, 5]]
    assert Suffix(history=str(path)).history.texts == [[1, 2, 3], [40_000, 5]]
    History().save(path)
    assert History.load(path).texts == []


def test_a_corrupt_file_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "history.safetensors"
    history_of([[1, 2, 3]] * 9).save(path)
    whole = path.read_bytes()
    for broken in (b"", b"no history", whole[:-5], b"\xff" * 200):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"is no suffix history.*delete it") as caught:
            Suffix(history=path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "lengths"),
    [([1, 2, 3], [2]), ([1, -2, 3], [3]), ([1, 2, 3], [3, 0]), ([[1, 2]], [2]), ([1.5], [1])],
)
def test_a_file_with_wrong_numbers_is_refused(tmp_path, tokens, lengths):
    path = tmp_path / "history.safetensors"
    metadata = {"format": "specdec_lab suffix history 1"}
    tensors = {"tokens": torch.tensor(tokens), "lengths": torch.tensor(lengths)}
    save_file(tensors, str(path), metadata=metadata)
    with pytest.raises(ValueError, match="is no suffix history"):
        History.load(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(2)}, str(path))
    with pytest.raises(ValueError, match="another kind of safetensors file"):
        History.load(path)
    with pytest.raises(ValueError, match="There is no history"):
        History.load(tmp_path / "absent")
