"""On the real model, end to end: speculation changes the number of forwards and nothing else.

    pytest tests/test_real_model.py

Where the probe says that rows are bit-identical, greedy text must be equal token for token; where
it does not, a difference must be a tie of the target's own logits. A bug is never excused.
"""

import pytest
import torch

from specdec_lab.decoding.checkpoint import fetch, load_target
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import classify_mismatch, probe_rows
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer

pytestmark = pytest.mark.model
BUDGET = 40


@pytest.fixture(scope="module")
def target(default_model):
    return default_model


@pytest.fixture(scope="module")
def excused(target) -> set[str]:
    """What two greedy texts may be to each other on this machine."""
    return {"equal"} if all(probe_rows(target).values()) else {"equal", "tie"}


@pytest.fixture(scope="module")
def prompts(target) -> list[list[int]]:
    chosen = [load_prompts(domain)[0] for domain in ("chat", "code", "quotation")]
    return [prompt.ids(target) for prompt in [*chosen, *load_prompts("quotation", "tr")[:1]]]


@pytest.fixture(scope="module")
def plain(target, prompts) -> list[list[int]]:
    return [generate(target, [ids], max_new_tokens=BUDGET).tokens[0] for ids in prompts]


@pytest.mark.parametrize("k", [1, 4, 9])
def test_greedy_text_is_that_of_plain_decoding(target, prompts, plain, excused, k):
    for ids, expected in zip(prompts, plain, strict=True):
        got = generate(target, [ids], load_proposer("ngram"), k=k, max_new_tokens=BUDGET)
        assert classify_mismatch(target, ids, expected, got.tokens[0]) in excused
        assert got.trace.num_forwards <= len(expected)


def test_rows_of_a_batch_equal_their_prompts_alone(target, prompts, plain, excused):
    got = generate(target, prompts, load_proposer("ngram"), k=4, max_new_tokens=BUDGET)
    for ids, expected, tokens in zip(prompts, plain, got.tokens, strict=True):
        assert classify_mismatch(target, ids, expected, tokens) in excused
    assert got.trace.num_forwards < BUDGET


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_text_is_that_of_transformers(target, prompts, penalty):
    """Other kernels, so ties are looked at; the repetition penalty is right along drafts."""
    from transformers import AutoModelForCausalLM

    peer = AutoModelForCausalLM.from_pretrained(fetch(), dtype=torch.float32).eval()
    sampling = Sampling(repetition_penalty=penalty)
    for ids in prompts[:3]:
        prompt = torch.tensor([ids])
        whole = peer.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=24,
            do_sample=False,
            repetition_penalty=penalty,
        )
        expected = whole[0, len(ids) :].tolist()
        got = generate(
            target, [ids], load_proposer("ngram"), k=4, sampling=sampling, max_new_tokens=24
        )
        verdict = classify_mismatch(target, ids, expected, got.tokens[0])
        assert verdict == "equal" or (penalty == 1 and verdict == "tie")


def test_a_seed_fixes_the_sampled_text(target, prompts, excused):
    warm = Sampling(temperature=0.8, top_p=0.95)
    how = {"sampling": warm, "max_new_tokens": 24}
    texts = []
    for seed in (1, 2):
        expected = generate(target, [prompts[0]], seed=seed, **how).tokens
        got = generate(target, [prompts[0]], load_proposer("ngram"), k=4, seed=seed, **how).tokens
        if excused == {"equal"}:
            assert got == expected
        texts.append(got[0])
    assert texts[0] != texts[1]


def test_10_bf16_text_is_greedy_up_to_near_ties(target, prompts):
    """Rows of different forwards round differently in bf16: every difference must be a tie."""
    half = load_target(dtype=torch.bfloat16)
    for ids in prompts[1:3]:
        expected = generate(half, [ids], max_new_tokens=24).tokens[0]
        got = generate(half, [ids], load_proposer("ngram"), k=4, max_new_tokens=24).tokens[0]
        assert classify_mismatch(half, ids, expected, got, gap=0.3) in {"equal", "tie"}


def test_14_the_real_end_token_ends_an_answer(target):
    ids = target.encode_chat("What is the capital of France? Answer in one sentence.")
    for proposer in (None, load_proposer("ngram")):
        got = generate(target, [ids], proposer, max_new_tokens=40)
        assert got.finish_reasons == ["eos"]
        assert got.tokens[0][-1] in target.eos_ids
        assert "Paris" in target.decode(got.tokens[0])


def test_a_tree_writes_the_text_of_plain_decoding(target, prompts, plain):
    """Siblings shift the keys of a row, so a near-tie of the target may fall the other way."""
    proposer = load_proposer({"method": "suffix", "tree": True})
    got = generate(target, prompts, proposer, k=9, max_new_tokens=BUDGET)
    for ids, expected, tokens in zip(prompts, plain, got.tokens, strict=True):
        assert classify_mismatch(target, ids, expected, tokens) in {"equal", "tie"}
    assert any(step.depths != sorted(set(step.depths)) for step in got.trace.steps)  # it branched
    assert got.trace.num_forwards < BUDGET
