"""Drafts along known texts lead to the very steps that real decoding takes.

pytest tests/study/test_forced_drafts.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.draft_tree import DraftTree
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.mlp_speculator import MLPSpeculator, new_stages
from specdec_lab.proposers.ngram import NGram
from specdec_lab.proposers.pard import PARD, new_masked_model
from specdec_lab.proposers.short_model import ShortModel, new_short_model
from specdec_lab.study.expected_steps import count_steps
from specdec_lab.study.forced_drafts import acceptance_along, carried_on, read_texts
from toys import random_target

TARGET = random_target(seed=3, vocab_size=8, eos_ids=(7,), max_context=128)
VOCAB = DraftVocab([0, 1, 2, 4, 5, 7], 8)
PROMPTS = [[1, 2, 3, 1, 2], [4], [0, 5, 0]]
BUDGET = 17


def short(kept=VOCAB):
    return ShortModel(new_short_model(TARGET, kept, 1), kept, TARGET)


def speculator():
    stages = new_stages(TARGET, VOCAB, 3, width=24)
    stages.initialise(torch.Generator().manual_seed(0), 4.0)
    return MLPSpeculator(TARGET, stages, vocab=VOCAB)


def pard():
    return PARD(TARGET, ShortModel(new_masked_model(TARGET, VOCAB, 1), VOCAB, TARGET))


DRAFTERS = {
    "ngram": NGram,
    "short model": lambda: DraftModel(TARGET, short()),
    "a model of another kind": lambda: DraftModel(TARGET, random_target(4, vocab_size=8)),
    "MLP speculator": speculator,
    "PARD": pard,
    "tree": lambda: DraftTree(TARGET, short(), width=2, depth=3),
}


def texts_for(drafter, sampling=None, seed=0):
    answers = generate(
        TARGET, PROMPTS, sampling=sampling or Sampling(), max_new_tokens=BUDGET, seed=seed
    ).tokens
    layers = {0, 1, *getattr(drafter, "hidden_layers", ())}  # others' states do no harm
    return answers, read_texts(TARGET, PROMPTS, answers, layers, sampling)


def steps_of(found, row, answer, k):
    ended = answer[-1] in TARGET.eos_ids
    chances = found.chances[row, : len(answer)].tolist()
    return count_steps(chances, found.drafted[row].tolist(), k, ended)


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("k", [1, 3])
def test_greedy_steps_are_those_of_decoding(name, k):
    drafter = DRAFTERS[name]()
    answers, texts = texts_for(drafter)
    drafted = k if name == "tree" else 3  # the first k of three tokens are those of a draft of k
    found = acceptance_along(drafter, texts, drafted)
    for row, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True)):
        real = generate(TARGET, [prompt], drafter, k=k, max_new_tokens=BUDGET)
        assert real.tokens == [answer]
        told = steps_of(found, row, answer, k)
        assert told.steps == real.trace.num_forwards
        assert sum(told.accepted) == real.trace.num_accepted
        assert sum(told.judged) - sum(told.accepted) == real.trace.num_rejected


@pytest.mark.parametrize("name", ["ngram", "short model", "MLP speculator", "PARD"])
def test_sampled_steps_are_those_of_decoding_on_average(name):
    """Expected steps over texts that plain decoding draws, and the mean over runs of the loop."""
    drafter, warm, seeds = DRAFTERS[name](), Sampling(temperature=1.0), range(200)
    prompts = [PROMPTS[1]] * len(seeds)
    how = {"sampling": warm, "max_new_tokens": 9, "seed": list(seeds)}
    answers = generate(TARGET, prompts, **how).tokens
    layers = getattr(drafter, "hidden_layers", ())
    found = acceptance_along(drafter, read_texts(TARGET, prompts, answers, layers, warm), 3, warm)
    told = [steps_of(found, row, answer, 3).steps for row, answer in enumerate(answers)]
    expected = sum(told) / sum(map(len, answers))
    trace = generate(TARGET, prompts, drafter, k=3, **how | {"seed": seeds[::-1]}).trace
    assert expected == pytest.approx(len(trace.steps) / trace.num_tokens, rel=0.07)
    assert expected < 0.95


@torch.no_grad()
def test_the_overlap_is_the_sum_of_the_smaller_of_both_laws():
    drafter, warm = DraftModel(TARGET, short()), Sampling(temperature=0.7)
    answers, texts = texts_for(drafter, warm)
    found = acceptance_along(drafter, texts, 2, warm)
    model = drafter.model.model
    for row, place in ((0, 0), (0, 2), (1, 0)):
        ids = torch.tensor([[*PROMPTS[row], *answers[row][:place]]])
        states, _ = model(ids)
        q = torch.zeros(8, dtype=torch.float64)
        q[VOCAB.draft_to_target] = warm.probs(model.head(states)[0, -1])
        hidden, _ = TARGET.model(ids)
        p = warm.probs(TARGET.model.head(hidden)[0, -1])
        share = torch.minimum(p, q).sum()
        assert float(found.overlap[row, place, 0]) == pytest.approx(float(share), abs=1e-6)
        token = answers[row][place]
        chance = min(1.0, float(q[token] / p[token]))
        assert float(found.chances[row, place, 0]) == pytest.approx(chance, abs=1e-6)


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.7)])
def test_what_a_draft_model_says_of_a_place_does_not_depend_on_how_it_came_there(sampling):
    drafter = DraftModel(TARGET, short())
    answers, texts = texts_for(drafter, sampling)
    whole = acceptance_along(drafter, texts, 3, sampling)
    told = carried_on(acceptance_along(drafter, texts, 1, sampling), 3)
    for row, answer in enumerate(answers):
        for k in (1, 2, 3):
            one, other = (steps_of(found, row, answer, k) for found in (whole, told))
            assert one.steps == pytest.approx(other.steps, abs=1e-6)
            assert one.accepted == pytest.approx(other.accepted, abs=1e-6)
        if sampling:
            known = whole.overlap[row, : len(answer)].isfinite()
            pair = (found.overlap[row, : len(answer)][known] for found in (whole, told))
            torch.testing.assert_close(*pair)


def test_sampled_trees_are_refused():
    drafter, warm = DRAFTERS["tree"](), Sampling(temperature=1.0)
    _, texts = texts_for(drafter, warm)
    with pytest.raises(ValueError, match="sampled tree"):
        acceptance_along(drafter, texts, 3, warm)


@pytest.mark.parametrize(
    ("chances", "k", "ended", "steps"),
    [
        ([[1, 1]] * 6, 2, False, 2),  # three tokens a step
        ([[1, 1]] * 7, 2, False, 3),
        ([[0, 1]] * 5, 2, False, 5),
        ([[1, 0]] * 4, 2, False, 2),
        ([[1, 1]] * 2, 2, True, 1),  # the end token was drafted too
        ([[0.5], [0.5], [0.5]], 1, False, 1 + 0.5 + (0.5 + 0.25)),
    ],
)
def test_steps_by_hand(chances, k, ended, steps):
    assert count_steps(chances, [k] * len(chances), k, ended).steps == pytest.approx(steps)
