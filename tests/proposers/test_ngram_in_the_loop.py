"""The n-gram proposer inside `generate`: whatever it says, the text is that of plain decoding.

pytest tests/proposers/test_ngram_in_the_loop.py
"""

import pytest

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.ngram import OCCURRENCES, NGram
from toys import ToyTarget, random_law

VOCAB = 4
PROMPTS = [[0, 1, 2, 0, 1], [3], [2, 2, 2, 2, 2, 2, 2], [1, 3, 0, 1, 3, 0, 1, 3]]

each_occurrence = pytest.mark.parametrize("occurrence", OCCURRENCES)


def one_hot(token: int) -> list[float]:
    """The law that always says ``token``."""
    return [float(token == i) for i in range(VOCAB)]


def cycle_with_slips(context: tuple[int, ...]) -> list[float]:
    """0, 1, 2, 3, 0, ... but every seventh token breaks the cycle: drafts of every fate."""
    return one_hot((context[-1] + (3 if len(context) % 7 == 0 else 1)) % VOCAB)


@each_occurrence
def test_greedy_text_is_that_of_plain_decoding_case_9(occurrence):
    target = ToyTarget(cycle_with_slips, VOCAB)
    plain = generate(target, PROMPTS, max_new_tokens=40)
    for k in (1, 3, 8):
        fast = generate(target, PROMPTS, NGram(1, 3, occurrence), k=k, max_new_tokens=40)
        assert fast.tokens == plain.tokens
        assert 0 < fast.trace.num_accepted < fast.trace.num_drafted


def test_a_first_draft_that_is_wrong_is_refused_case_9():
    target = ToyTarget(lambda context: one_hot(2), VOCAB)  # n-gram says 1 after 1, 1, 1
    found = generate(target, [[1, 1, 1]], NGram(1, 2), k=1, max_new_tokens=1)
    assert found.tokens == [[2]]


def test_a_seed_gives_the_text_of_plain_sampling():
    target = ToyTarget(random_law(3, VOCAB), VOCAB)
    asked = {"sampling": Sampling(temperature=1.0), "seed": 11, "max_new_tokens": 30}
    plain = generate(target, PROMPTS, **asked)
    fast = generate(target, PROMPTS, NGram(1, 3), k=4, **asked)
    assert fast.tokens == plain.tokens
    assert fast.trace.num_accepted > 0


@each_occurrence
def test_a_row_of_a_batch_equals_its_prompt_alone_case_23(occurrence):
    target = ToyTarget(cycle_with_slips, VOCAB)
    together = generate(target, PROMPTS, NGram(1, 3, occurrence), k=4, max_new_tokens=20)
    for prompt, row, steps in zip(PROMPTS, together.tokens, together.trace.rows, strict=True):
        alone = generate(target, [prompt], NGram(1, 3, occurrence), k=4, max_new_tokens=20)
        assert alone.tokens == [row]
        assert [step.drafted for step in alone.trace.rows[0]] == [step.drafted for step in steps]


def test_nothing_follows_an_end_token_case_13():
    row = [3, 0, 1, 2, 0, 1]  # n-gram says 2, 0, 1; the target says 2 after 1 and 0 after 2
    target = ToyTarget(lambda context: one_hot((context[-1] + 1) % 3), VOCAB, eos_ids=(2,))
    found = generate(target, [row], NGram(2, 2), k=3, max_new_tokens=9)
    assert (found.tokens, found.finish_reasons) == ([[2]], ["eos"])
    assert found.trace.rows[0][0].drafted == [2]


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_the_budget_bounds_the_draft_case_15(budget):
    target = ToyTarget(lambda context: one_hot(0), VOCAB)
    found = generate(target, [[0] * 9], NGram(1, 2, "first"), k=5, max_new_tokens=budget)
    assert found.tokens == [[0] * budget]
    assert found.trace.num_drafted == budget - 1
    assert found.trace.num_forwards == 1


def test_a_prompt_of_one_token_is_a_step_without_draft_case_15():
    target = ToyTarget(lambda context: one_hot(0), VOCAB)
    found = generate(target, [[3]], NGram(3, 3), k=4, max_new_tokens=2)
    assert found.tokens == [[0, 0]]
    assert found.trace.draft_coverage == 0
