"""Suffix decoding inside `generate`: whatever it says, the text is that of plain decoding.

pytest tests/proposers/test_suffix_in_the_loop.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.suffix import Suffix
from toys import ToyTarget, random_law

VOCAB = 4
PROMPTS = [[0, 1, 2, 0, 1], [3], [2, 2, 2, 2, 2, 2, 2], [1, 3, 0, 1, 3, 0, 1, 3]]


def one_hot(token: int) -> list[float]:
    """The law that always says ``token``."""
    return [float(token == i) for i in range(VOCAB)]


def cycle_with_slips(context: tuple[int, ...]) -> list[float]:
    """0, 1, 2, 3, 0, ... but every seventh token breaks the cycle: drafts of every fate."""
    return one_hot((context[-1] + (3 if len(context) % 7 == 0 else 1)) % VOCAB)


def long_answer(context: tuple[int, ...]) -> list[float]:
    """An answer in which no token stands twice behind the same one: nothing to copy locally."""
    steps = [0, 1, 2, 3, 1, 0, 2, 1, 3, 0, 3, 2, 0]
    return one_hot(steps[len(context) % len(steps)])


def test_greedy_text_is_that_of_plain_decoding_case_9():
    target = ToyTarget(cycle_with_slips, VOCAB)
    plain = generate(target, PROMPTS, max_new_tokens=40)
    for k in (1, 3, 8):
        for proposer in (Suffix(), Suffix(factor=3, min_token_prob=0), Suffix(min_match=2)):
            for _ in range(2):  # the second time with the first answers as history
                fast = generate(target, PROMPTS, proposer, k=k, max_new_tokens=40)
                assert fast.tokens == plain.tokens
                assert 0 < fast.trace.num_accepted < fast.trace.num_drafted


def test_a_history_that_lies_changes_nothing_case_9():
    target = ToyTarget(lambda context: one_hot(2), VOCAB)
    proposer = Suffix()
    proposer.remember([1, 1, 1, 0, 0, 0, 3, 1, 3])
    found = generate(target, [[1, 1, 1]], proposer, k=3, max_new_tokens=4)
    assert found.tokens == [[2, 2, 2, 2]]


def test_a_seed_gives_the_text_of_plain_sampling():
    target = ToyTarget(random_law(3, VOCAB), VOCAB)
    asked = {"sampling": Sampling(temperature=1.0), "seed": 11, "max_new_tokens": 30}
    plain = generate(target, PROMPTS, **asked)
    proposer = Suffix()
    for _ in range(2):
        fast = generate(target, PROMPTS, proposer, k=4, **asked)
        assert fast.tokens == plain.tokens
        assert fast.trace.num_accepted > 0


def test_a_row_of_a_batch_equals_its_prompt_alone_case_23():
    target = ToyTarget(cycle_with_slips, VOCAB)

    def proposer():
        fresh = Suffix()
        fresh.remember([0, 1, 2, 3, 0, 1, 2, 3])
        return fresh

    together = generate(target, PROMPTS, proposer(), k=4, max_new_tokens=20)
    for prompt, row, steps in zip(PROMPTS, together.tokens, together.trace.rows, strict=True):
        alone = generate(target, [prompt], proposer(), k=4, max_new_tokens=20)
        assert alone.tokens == [row]
        assert [step.drafted for step in alone.trace.rows[0]] == [step.drafted for step in steps]


def test_the_drafts_are_those_of_a_proposer_that_follows_nothing():
    class Forgetful(Suffix):
        """Counts afresh in every step."""

        def propose(self, context, k, sampling, randomness):
            self._forget()
            return super().propose(context, k, sampling, randomness)

    target = ToyTarget(cycle_with_slips, VOCAB)
    runs = [generate(target, PROMPTS, p, k=5, max_new_tokens=40) for p in (Suffix(), Forgetful())]
    steps = [[[s.drafted for s in row] for row in run.trace.rows] for run in runs]
    assert steps[0] == steps[1]


def test_an_answer_is_remembered_at_the_next_start():
    target = ToyTarget(cycle_with_slips, VOCAB)
    proposer = Suffix()
    first = generate(target, PROMPTS, proposer, k=3, max_new_tokens=9)
    assert proposer.history.texts == []
    generate(target, [[3]], proposer, k=3, max_new_tokens=1)
    assert proposer.history.texts == [tokens[:-1] for tokens in first.tokens]


def test_remembering_can_be_left_to_the_caller():
    target = ToyTarget(cycle_with_slips, VOCAB)
    proposer = Suffix(remember_outputs=False)
    for _ in range(2):
        found = generate(target, [[3]], proposer, k=3, max_new_tokens=9)
    assert proposer.history.texts == []
    proposer.remember(found.tokens[0])
    assert proposer.history.texts == found.tokens


def test_a_repeated_request_needs_fewer_forwards():
    target = ToyTarget(long_answer, VOCAB)
    alone, shared = Suffix(max_requests=0), Suffix()
    forwards = {"alone": [], "shared": []}
    for _ in range(2):
        for name, proposer in (("alone", alone), ("shared", shared)):
            found = generate(target, [[0]], proposer, k=6, max_new_tokens=12)
            forwards[name].append(found.trace.num_forwards)
    assert forwards["alone"][0] == forwards["alone"][1]
    assert forwards["shared"][1] < forwards["alone"][1]


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_the_budget_bounds_the_draft_case_15(budget):
    target = ToyTarget(lambda context: one_hot(0), VOCAB)
    found = generate(target, [[0] * 9], Suffix(), k=5, max_new_tokens=budget)
    assert found.tokens == [[0] * budget]
    assert found.trace.num_forwards == 1


def test_a_hand_made_context_needs_no_start():
    tokens = torch.tensor([[1, 2, 3, 1]])
    lengths = torch.tensor([4])
    draft = Suffix().propose(Context(tokens, lengths, lengths), 2, Sampling(), None)
    assert draft.tokens[0, : int(draft.count)].tolist() == [2]
