"""Logits to laws: edge values (CASES 10-12), filters, penalties along a path (CASE 27).

pytest tests/decoding/test_sampling.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling, history_of


def law(logits: list[float], **how) -> list[float]:
    return Sampling(**how).probs(torch.tensor(logits, dtype=torch.float64)).tolist()


def test_10_equal_bf16_logits_are_a_tie_and_the_lowest_id_wins():
    logits = torch.tensor([1.0, 23.5, 23.56], dtype=torch.bfloat16)
    assert logits[1] == logits[2]
    assert Sampling().probs(logits).tolist() == [0, 1, 0]
    assert int(Sampling().choose(logits, None, None, None)) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0, 1e-9, 1e-6, 1e-3])
def test_11_low_temperatures_are_finite_and_agree_with_greedy(temperature, dtype):
    logits = torch.tensor([60000.0, 59000.0, -60000.0], dtype=dtype)
    sampling = Sampling(temperature=temperature)
    assert sampling.is_greedy == (temperature < 1e-5)
    assert sampling.probs(logits).tolist() == [1, 0, 0]


@pytest.mark.parametrize("top_p", [1e-9, 1e-8, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_12_a_tiny_top_p_keeps_exactly_the_argmax(top_p, dtype):
    logits = torch.linspace(0, 3, 4096, dtype=dtype)
    logits[1234] = 3.5
    probs = Sampling(temperature=1.0, top_p=top_p).probs(logits)
    assert probs.nonzero().flatten().tolist() == [1234]


def test_12_the_token_that_crosses_the_line_stays():
    p = torch.tensor([0.45, 0.3, 0.2, 0.05], dtype=torch.float64)
    kept = Sampling(temperature=1.0, top_p=0.6).probs(p.log())
    assert kept.tolist() == pytest.approx([0.6, 0.4, 0, 0])


def test_12_top_k_of_one_equals_greedy_even_for_ties():
    assert law([1.0, 2.0, 2.0], temperature=1.0, top_k=1) == [0, 1, 0]
    assert Sampling(temperature=1.0, top_k=1).is_greedy


def test_04_filters_apply_after_temperature():
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log().tolist()
    assert law(p, temperature=0.5) == pytest.approx([0.7826, 0.1957, 0.0217], abs=1e-4)
    assert law(p, temperature=1.0, top_k=2) == pytest.approx([2 / 3, 1 / 3, 0])
    assert law(p, temperature=1.0, min_p=0.4) == pytest.approx([2 / 3, 1 / 3, 0])


def test_a_row_with_a_single_possible_token():
    minus_infinity = float("-inf")
    assert law([minus_infinity, 0.5, minus_infinity], temperature=0.7) == [0, 1, 0]


def test_bias_is_added():
    assert law([0.0, 0.0], temperature=1.0, bias={1: 50.0})[1] == pytest.approx(1)
    assert law([3.0, 0.0], bias={1: 4.0}) == [0, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-20, 20), min_size=2, max_size=12),
    st.floats(0.1, 3),
    st.none() | st.integers(1, 12),
    st.floats(1e-6, 1),
    st.floats(0, 1),
)
def test_every_law_is_a_law_and_keeps_the_best_token(logits, temperature, top_k, top_p, min_p):
    rows = torch.tensor(logits, dtype=torch.float64)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    probs = sampling.probs(rows)
    assert float(probs.sum()) == pytest.approx(1, abs=1e-12)
    assert (probs >= 0).all()
    best = Sampling(temperature=temperature).probs(rows).argmax()  # logits may differ by less
    assert probs[best] > 0
    if top_k is not None:
        assert int((probs > 0).sum()) <= top_k
    assert torch.equal(sampling.probs(rows.expand(3, -1))[1], probs)  # a row is a row


def test_27_counts_grow_along_the_drafted_path():
    """Committed A B A C, prompt A; then drafted B C: row i has seen drafts 0..i-1 only."""
    context = Context(torch.tensor([[0, 1, 0, 2]]), torch.tensor([4]), torch.tensor([1]))
    draft = Draft(torch.tensor([[1, 2]]), torch.tensor([2]))
    history = history_of(Sampling(frequency_penalty=0.5), context, draft, 3)
    assert history.total.tolist() == [[[2, 1, 1], [2, 2, 1], [2, 2, 2]]]
    assert history.output.tolist() == [[[1, 1, 1], [1, 2, 1], [1, 2, 2]]]
    logits = torch.zeros(1, 3, 3)
    penalised = Sampling(frequency_penalty=0.5)._adjusted(logits, history)
    assert penalised[0, 1].tolist() == [-0.5, -1.0, -0.5]


def test_27_padding_is_not_counted():
    context = Context(torch.tensor([[0, 1, 2, 2]]), torch.tensor([2]), torch.tensor([2]))
    history = history_of(Sampling(presence_penalty=1.0), context, Draft.empty(1), 3)
    assert history.total.tolist() == [[[1, 1, 0]]]
    assert history.output.tolist() == [[[0, 0, 0]]]


def test_repetition_penalty_equals_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    ids = torch.tensor([[0, 3, 3, 1]])
    logits = torch.tensor([[1.5, -0.5, 0.3, 2.0, -1.0]])
    want = RepetitionPenaltyLogitsProcessor(1.3)(ids, logits.clone())
    context = Context(ids, torch.tensor([4]), torch.tensor([2]))
    sampling = Sampling(repetition_penalty=1.3)
    history = history_of(sampling, context, Draft.empty(1), 5)
    assert torch.allclose(sampling._adjusted(logits[:, None], history)[:, 0], want)


def test_top_k_top_p_min_p_equal_transformers():
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    torch.manual_seed(0)
    logits = torch.randn(20, 50, dtype=torch.float64)
    scores = logits / 0.8
    for warper in (TopKLogitsWarper(20), TopPLogitsWarper(0.9), MinPLogitsWarper(0.05)):
        scores = warper(None, scores)
    ours = Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.05).probs(logits)
    assert torch.allclose(ours, scores.softmax(-1), atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": "hot"},
        {"top_p": 0.0},
        {"top_p": 1.2},
        {"top_k": 0},
        {"top_k": 2.0},
        {"top_k": True},
        {"min_p": -0.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": float("inf")},
        {"bias": {3: float("nan")}},
    ],
)
def test_values_out_of_range_get_one_sentence(wrong):
    with pytest.raises(ValueError, match=r"\.$") as caught:
        Sampling(**wrong)
    assert "\n" not in str(caught.value)


def test_penalties_without_history_are_refused():
    with pytest.raises(ValueError, match="history"):
        Sampling(presence_penalty=1.0).probs(torch.zeros(1, 3))
