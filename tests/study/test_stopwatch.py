"""The one clock: rounds that alternate, ratios within a round, spreads. No time is tested.

pytest tests/study/test_stopwatch.py
"""

import pytest

from specdec_lab.study.stopwatch import (
    Spread,
    Times,
    alternate,
    check_rounds,
    clocked,
    in_turn,
    time_arms,
)


def counting(order):
    """Two arms that note when they run and return how many runs there were."""
    return {name: (lambda name=name: order.append(name) or len(order)) for name in "ab"}


def test_arms_alternate_and_every_second_round_goes_backwards():
    order: list[str] = []
    assert alternate(counting(order), 3, warm_up=0) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert "".join(order) == "abbaab"


def test_the_warm_up_is_not_counted():
    order: list[str] = []
    assert alternate(counting(order), 3) == {"a": [3, 6, 7], "b": [4, 5, 8]}
    assert "".join(order) == "baabbaab"


@pytest.mark.parametrize("rounds", [2, 1, 0])
def test_fewer_than_three_rounds_are_refused_before_anything_runs(rounds):
    order: list[str] = []
    with pytest.raises(ValueError, match="a time needs 3 rounds or more"):
        alternate(counting(order), rounds)
    assert not order
    assert check_rounds(3) == 3


def test_in_turn():
    assert [in_turn("abc", number) for number in (0, 1, 2)] == [[*"abc"], [*"cba"], [*"abc"]]


def test_a_ratio_is_taken_within_each_round():
    times = Times({"one": [1.0, 10.0, 2.0], "five": [2.0, 10.0, 3.0]})
    assert times.ratio("five", "one") == Spread(1.5, 1.0, 2.0)  # of medians it would be 3 / 2
    assert times.of("one", "ms") == Spread(2000, 1000, 10000)
    assert times.medians() == {"one": 2, "five": 3}


def test_a_spread_shows_median_lowest_and_highest():
    spread = Spread.of([1.0, 4.0, 1.5])
    assert str(spread) == "1.50 (1.00-4.00)"
    assert f"{spread:.0f}" == "2 (1-4)"
    assert not spread.exceeds(0.99)  # within the error of any clock
    assert spread.exceeds(0.97)
    with pytest.raises(ValueError, match="a round at least"):
        Spread.of([])


def test_the_table_says_what_it_shows():
    text = Times({"one": [0.001, 0.001, 0.002], "five": [0.002, 0.002, 0.004]}).table()
    one, five, note = text.splitlines()[2:]
    assert one.split() == ["one", "1.0", "(1.0-2.0)", "1.00", "(1.00-1.00)"]
    assert five.split() == ["five", "2.0", "(2.0-4.0)", "2.00", "(2.00-2.00)"]
    assert note == "median of 3 alternating rounds (lowest-highest)"


def test_a_call_is_timed_and_its_result_kept():
    seconds, result = clocked(lambda: "done")
    assert seconds >= 0
    assert result == "done"
    assert set(time_arms({"a": int, "b": str}).seconds) == {"a", "b"}
