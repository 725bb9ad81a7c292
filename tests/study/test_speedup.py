"""Speed-ups over plain decoding from known traces, and what is refused. No time is tested.

pytest tests/study/test_speedup.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Draft, RowStep
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.trace import Trace
from specdec_lab.proposers.ngram import NGram
from specdec_lab.study.speedup import Speeds, _Runs, measure_speedup
from specdec_lab.study.stopwatch import Spread
from toys import random_target

LOOPS = [[1, 2, 3, 1, 2, 3, 1], [4, 5, 4, 5]]


@pytest.fixture(scope="module")
def target():
    return random_target(dtype=torch.float32)


def trace(steps, tokens_a_step, prompt, seconds):
    """A request of so many equal steps."""
    row = [RowStep([], [0] * tokens_a_step, 0, 0.0) for _ in range(steps)]
    parts = {"prefill": prompt, "propose": seconds / 4, "score": 3 * seconds / 4}
    return Trace([row], parts, steps)


def runs(*traces):
    return _Runs(list(traces), [[]])


PLAIN_RUNS = runs(*(trace(12, 1, 1.0, 12.0 * slow) for slow in (1, 3, 2)))


def test_the_prompt_counts_in_one_speedup_and_not_in_the_other():
    fast = runs(*(trace(4, 3, 1.0, 5.0 * slow) for slow in (1, 3, 2)))  # a step takes 1.25
    speed = fast.against(PLAIN_RUNS)
    assert speed.tau == 3
    assert speed.price == Spread(1.25, 1.25, 1.25)
    assert speed.draft == Spread(0.3125, 0.3125, 0.3125)  # the quarter of it that drafts
    assert speed.steps == Spread(2.4, 2.4, 2.4)  # tau over the price of a step
    found = (speed.speedup.median, speed.speedup.low, speed.speedup.high)
    assert found == pytest.approx((25 / 11, 13 / 6, 37 / 16))  # whole requests, round by round
    assert speed.seconds == Spread(11, 6, 16)
    assert not speed.refused
    assert speed.entry("steps") == {
        "tau": 3,
        "steps": 2.4,
        "low": 2.4,
        "high": 2.4,
        "refused": False,
    }


def test_a_speedup_above_tau_by_more_than_its_spread_is_refused():
    disturbed = runs(*(trace(4, 3, 1.0, 3.0 * slow) for slow in (1, 3, 2)))
    speed = disturbed.against(PLAIN_RUNS)
    assert speed.refused
    text = str(Speeds({"plain": PLAIN_RUNS.against(PLAIN_RUNS), "twin": speed}, 3, 12))
    assert text.splitlines()[-2].split()[-1] == "refused"
    assert text.endswith("above tau by more than its spread; measure again on a quieter machine")


def test_every_way_decodes_every_prompt(target):
    ways = {"n-gram": {"proposer": NGram(), "k": 3}, "short": {"proposer": NGram(), "k": 1}}
    speeds = measure_speedup(target, LOOPS, ways, max_new_tokens=12)
    assert list(speeds) == ["plain", "n-gram", "short"]
    expected = [generate(target, [ids], NGram(), k=3, max_new_tokens=12) for ids in LOOPS]
    assert speeds["n-gram"].tokens == [run.tokens[0] for run in expected]
    assert speeds["n-gram"].tokens == speeds["plain"].tokens
    assert len(speeds["n-gram"].trace.steps) == sum(len(run.trace.steps) for run in expected)
    assert speeds["plain"].speedup == Spread(1, 1, 1)
    assert str(speeds).startswith("2 requests of at most 12 tokens; median of 3 alternating")


def test_what_all_ways_share_holds_for_plain_decoding_too(target):
    how = {"sampling": Sampling(temperature=1.0), "max_new_tokens": 8}
    speeds = measure_speedup(target, LOOPS[:1], {"n-gram": {"proposer": NGram()}}, **how)
    alone = generate(target, LOOPS[:1], seed=0, **how)
    assert speeds["plain"].tokens == alone.tokens


class Remembering:
    """Drafts nothing for the first two requests, then the answer that it was given."""

    def __init__(self, answer):
        self.answer, self.starts = answer, 0

    def start(self, batch_size, max_length):
        self.starts += 1

    def propose(self, context, k, sampling, randomness):
        done = int(context.lengths) - int(context.prompt_lengths)
        right = self.answer[done : done + k] if self.starts > 2 else []
        return Draft(torch.tensor([right], dtype=torch.long), torch.tensor([len(right)]))


def test_a_proposer_that_remembers_the_answers_is_refused(target):
    (answer,) = generate(target, LOOPS[:1], max_new_tokens=12).tokens
    way = {"proposer": Remembering(answer), "k": 4}
    with pytest.raises(ValueError, match="let it remember nothing between requests"):
        measure_speedup(target, LOOPS[:1], {"own": way}, max_new_tokens=12)


@pytest.mark.parametrize(("warm_up", "requests"), [(3, 4), (0, 3)])
def test_a_way_warms_up_where_it_is_asked_to(target, warm_up, requests):
    way = Remembering([])
    ways = {"own": {"proposer": way, "k": 4}}
    measure_speedup(target, LOOPS[:1], ways, max_new_tokens=4, warm_up=warm_up)
    assert way.starts == requests


def test_two_rounds_are_refused(target):
    with pytest.raises(ValueError, match="3 rounds or more"):
        measure_speedup(target, LOOPS, {}, rounds=2)
