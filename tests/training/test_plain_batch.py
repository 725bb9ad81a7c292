"""Many prompts at once give what each gives alone."""

from itertools import repeat

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.randomness import inverse_cdf
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.training import plain_batch
from specdec_lab.training.plain_batch import Job, answer_all, choose
from toys import random_target

END = 3
PROMPTS = [[5, 9, 2, 7, 1], [4], [8, 8, 1], [30, 2, 2, 6, 7, 9, 11], [12, 1], [6, 5, 4, 9]]


@pytest.fixture(scope="module")
def target():
    return random_target(eos_ids=(END,), dtype=torch.float64)


def answers(target, temperature, **options):
    """The answer to each prompt, in the order of the prompts."""
    jobs = [Job([1, *p], temperature, seed=50 + i, tag=i) for i, p in enumerate(PROMPTS)]
    found = {a.job.tag: a for a in answer_all(target, jobs, max_new_tokens=12, **options)}
    return [found[i] for i in range(len(PROMPTS))]


@pytest.fixture(scope="module")
def expected(target):
    """What generate writes for each prompt, by temperature."""
    prompts = [[1, *prompt] for prompt in PROMPTS]
    seeds = [50 + i for i in range(len(PROMPTS))]
    return {
        t: generate(
            target, prompts, sampling=Sampling(temperature=t), max_new_tokens=12, seed=seeds
        ).tokens
        for t in (0.0, 0.7, 1.0)
    }


@pytest.mark.parametrize(("temperature", "num_rows"), [(0.0, 4), (0.7, 16), (1.0, 1), (1.0, 4)])
def test_rows_write_what_generate_writes(target, expected, temperature, num_rows):
    found = answers(target, temperature, num_rows=num_rows)
    assert [a.tokens for a in found] == expected[temperature]
    for answer in found:
        assert answer.finish == ("eos" if answer.tokens[-1] == END else "length")


def test_both_ways_to_end_occur(target):
    assert {a.finish for a in answers(target, 1.0, num_rows=4)} == {"eos", "length"}


def test_temperatures_may_differ_between_rows(target):
    jobs = [Job([1, *PROMPTS[0]], t, seed=50) for t in (0.0, 1.0, 0.7)]
    mixed = {a.job.temperature: a.tokens for a in answer_all(target, jobs, 3, 12)}
    for job in jobs:
        (alone,) = answer_all(target, [job], 1, 12)
        assert mixed[job.temperature] == alone.tokens


def test_jobs_may_be_endless_and_are_taken_as_rows_come_free(target, monkeypatch):
    monkeypatch.setattr(plain_batch, "SORTED_TOGETHER", 4)
    endless = (Job([1, 2], 1.0, seed=i, tag=i) for i, _ in enumerate(repeat(None)))
    found = [a.job.tag for a, _ in zip(answer_all(target, endless, 3, 6), range(20), strict=False)]
    assert len(set(found)) == 20
    assert next(endless).tag <= 32


def test_a_prompt_without_room_for_an_answer_is_refused(target):
    with pytest.raises(ValueError, match="leave longer prompts out"):
        list(answer_all(target, [Job([1] * 90, 0.0, 0)], 2, 12))


@pytest.mark.parametrize("vocab_size", [5, 256, 700])
def test_the_two_stage_draw_is_the_inverse_of_the_cumulative_law(vocab_size):
    generator = torch.Generator().manual_seed(vocab_size)
    logits = 4 * torch.randn(400, vocab_size, generator=generator)
    uniform = torch.rand(400, generator=generator, dtype=torch.float64)
    uniform[:2] = torch.tensor([0.0, 1 - 2**-52])
    found = choose(logits, torch.full((400,), 0.7), uniform)
    expected = inverse_cdf((logits.double() / 0.7).softmax(-1), uniform)
    assert (found == expected).float().mean() > 0.99  # rounding may move a border
    assert found[0] == expected[0]
    assert found.max() < vocab_size


def test_the_draw_never_takes_a_token_without_mass():
    logits = torch.full((64, 600), -torch.inf)
    logits[:, [3, 400]] = 0.0
    found = choose(logits, torch.ones(64), torch.linspace(0, 1 - 1e-12, 64, dtype=torch.float64))
    assert set(found.tolist()) == {3, 400}


def test_what_the_target_saw_comes_with_the_answer(target):
    layers = (1, target.num_layers)
    for answer in answers(target, 1.0, num_rows=4, watched=layers):
        text = torch.tensor([[*answer.job.prompt, *answer.tokens]])[:, :-1]
        states, hidden = target.model(text, None, layers)
        for layer in layers:
            torch.testing.assert_close(
                answer.seen.hidden[layer], hidden[layer][0].half(), atol=2e-3, rtol=1e-3
            )
        laws = target.model.head(states[0, len(answer.job.prompt) - 1 :]).softmax(-1)
        shown = laws.gather(1, answer.seen.laws.ids)
        torch.testing.assert_close(answer.seen.laws.probs.double(), shown, atol=1e-6, rtol=1e-5)
        assert len(shown) == len(answer.tokens)
        assert torch.equal(answer.seen.laws.ids[:, 0], laws.argmax(-1))


def test_nothing_is_kept_unless_asked_for(target):
    assert all(answer.seen is None for answer in answers(target, 0.0))
