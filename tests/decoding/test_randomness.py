"""The counter-based source and the enumerating one.

pytest tests/decoding/test_randomness.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.randomness import (
    CounterRandomness,
    EnumeratingRandomness,
    Lane,
    enumerate_law,
    enumerate_laws,
    inverse_cdf,
    row_seeds,
)


def test_the_mixer_is_splitmix64():
    """Against the published generator's first outputs for state 0 and 1234567."""
    from specdec_lab.decoding.randomness import _INCREMENT, _mix

    mixed = _mix(torch.tensor([0, 1234567]) + _INCREMENT)
    unsigned = [value % 2**64 for value in mixed.tolist()]
    assert unsigned == [16294208416658607535, 6457827717110365317]


def test_uniforms_are_uniform_and_places_are_independent():
    position = torch.arange(200).expand(50, 200)
    chance = CounterRandomness(range(50))
    columns = [chance.uniform(position, lane, offset) for lane in Lane for offset in (0, 1)]
    values = torch.stack([column.flatten() for column in columns])  # (8, 10000)
    assert values.min() >= 0
    assert values.max() < 1
    assert torch.allclose(values.mean(1), torch.full((8,), 0.5, dtype=torch.float64), atol=0.02)
    counts = torch.histc(values.float(), 100, 0, 1)
    assert float(((counts - 800) ** 2 / 800).sum()) < 160  # chi-square, 99 degrees of freedom
    apart = torch.corrcoef(values) - torch.eye(8)
    assert apart.abs().max() < 0.05
    assert len(set(values.flatten().tolist())) == values.numel()


def test_a_row_does_not_depend_on_its_batch_or_the_order_of_calls():
    position = torch.tensor([[5, 6], [5, 6]])
    both = CounterRandomness([42, 7])
    both.uniform(position, Lane.ACCEPT)
    alone = CounterRandomness([42]).uniform(position[:1], Lane.TARGET)
    assert torch.equal(both.uniform(position, Lane.TARGET)[:1], alone)


def test_29_torchs_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    chance = CounterRandomness(row_seeds(None, 2))
    chance.draw(torch.rand(2, 3, generator=torch.Generator()), torch.tensor([1, 2]), Lane.DRAFT)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_29_seeds_of_rows():
    assert row_seeds(7, 3) == [7, 7, 7]
    mixed = row_seeds([42, None], 2)
    assert mixed[0] == 42
    assert len({row_seeds(None, 1)[0] for _ in range(20)}) == 20
    for wrong in ([1], 1.5, True, ["a", 1]):
        with pytest.raises(ValueError, match="seed"):
            row_seeds(wrong, 2)
    huge = CounterRandomness([2**70 + 3, -5])
    assert huge.uniform(torch.tensor([1, 1]), Lane.TARGET).shape == (2,)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1, exclude_max=True))
def test_the_inverse_cdf_never_picks_a_zero_and_inverts(weights, uniform):
    probs = torch.tensor(weights, dtype=torch.float64)
    if probs.sum() < 1e-6:
        return
    found = int(inverse_cdf(probs, torch.tensor(uniform, dtype=torch.float64)))
    assert probs[found] > 0
    below = float(probs[:found].sum() / probs.sum())
    assert below <= uniform + 1e-12
    assert uniform < float(probs[: found + 1].sum() / probs.sum()) + 1e-12


def test_the_inverse_cdf_at_both_ends():
    probs = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    ends = torch.tensor([0.0, 1 - 2.0**-52], dtype=torch.float64)
    assert inverse_cdf(probs.expand(2, -1), ends).tolist() == [1, 3]


def test_coins_are_strict():
    chance = EnumeratingRandomness()
    place = torch.tensor([0])
    assert not chance.coin(torch.tensor([0.0]), place, Lane.ACCEPT)
    assert chance.coin(torch.tensor([1.0]), place + 1, Lane.ACCEPT)


def test_enumeration_gives_the_law_of_a_little_program():
    probs = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    place = torch.tensor([4])

    def program(chance):
        token = int(chance.draw(probs, place, Lane.DRAFT))
        kept = bool(chance.coin(torch.tensor([0.25 * token]), place, Lane.ACCEPT))
        return token, kept

    law = enumerate_law(program)
    assert law == pytest.approx(
        {
            (0, False): 0.2,
            (1, True): 0.075,
            (1, False): 0.225,
            (2, True): 0.25,
            (2, False): 0.25,
        }
    )


def test_enumeration_of_a_reused_place_is_consistent_with_one_uniform():
    """Two coins on one uniform: both heads with the smaller probability, never the product."""
    place = torch.tensor([1])

    def program(chance):
        first = chance.coin(torch.tensor([0.5]), place, Lane.ACCEPT)
        second = chance.coin(torch.tensor([0.2]), place, Lane.ACCEPT)
        return bool(first), bool(second)

    law = enumerate_law(program)
    assert law == pytest.approx({(True, True): 0.2, (True, False): 0.3, (False, False): 0.5})


def test_branches_of_several_programs_run_as_rows_of_one_batch():
    """Each program has its own law; a row that is closed asks on and opens no branch."""
    heads = torch.tensor([0.25, 0.5, 0.75])
    sizes = []

    def programs(chance, which):
        place = torch.zeros(len(which), dtype=torch.long)
        sizes.append(len(which))
        first = chance.coin(heads[which], place, Lane.ACCEPT)
        for row in range(len(which)):
            chance.close(row) if first[row] else None
        second = chance.coin(torch.full((len(which),), 0.5), place + 1, Lane.ACCEPT)
        return [(bool(a), bool(a) or bool(b)) for a, b in zip(first, second, strict=True)]

    for width in (1, 2, 512):
        laws = enumerate_laws(programs, 3, width)
        for share, law in zip(heads.tolist(), laws, strict=True):
            rest = (1 - share) / 2
            assert law == pytest.approx(
                {(True, True): share, (False, True): rest, (False, False): rest}
            )
        assert sum(sizes) == 9
        assert max(sizes) <= width
        sizes.clear()


def test_enumeration_agrees_with_the_hashed_source():
    probs = torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)
    num = 20_000
    drawn = CounterRandomness(range(num)).draw(
        probs.expand(num, -1), torch.full((num,), 3), Lane.TARGET
    )
    law = enumerate_law(lambda r: (int(r.draw(probs, torch.tensor([3]), Lane.TARGET)),))
    shares = torch.bincount(drawn, minlength=3) / num
    assert [law[(i,)] for i in range(3)] == pytest.approx(shares.tolist(), abs=0.02)
