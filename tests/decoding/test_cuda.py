"""The loop on CUDA: the text of the CPU, captured steps, bf16, batches, and no host read in a step.

pytest -m gpu tests/decoding

Float32 products and attention of a GPU round in another order than those of a CPU, and a step of
another width in another order still: where two greedy texts differ, the logits must be a near-tie.
"""

import pytest
import torch

from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import classify_mismatch
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.ngram import NGram
from specdec_lab.proposers.suffix import Suffix
from toys import random_target

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
PROMPTS = [[3, 1, 4, 1, 5, 3, 1], [2, 7, 2], [9, 9, 9, 9]]
GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
BFLOAT16_GAP = 0.5  # logits so close may change places when sums are rounded to 8 bits
PROPOSERS = {
    "plain": lambda target: None,
    "ngram": lambda target: NGram(),
    "suffix": lambda target: Suffix(),
    "draft_model": lambda target: DraftModel(target, random_target(1, 32, target.dtype, DEVICE)),
}


def on_device(dtype, captured: bool):
    """A tiny target on the device, its steps captured or not."""
    return random_target(dtype=dtype, device=DEVICE, graphs=captured)


def assert_same_or_tie(judge, prompts, expected, found, gap=1e-3) -> None:
    """Greedy texts are equal, or part where the judge finds two tokens equally good."""
    for prompt, one, other in zip(prompts, expected, found, strict=True):
        assert classify_mismatch(judge, prompt, one, other, gap) != "bug"


def test_products_in_float32_are_not_rounded_to_tf32():
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("parents", [None, [-1, -1, 0]], ids=["chain", "tree"])
def test_a_captured_step_is_the_step(dtype, parents):
    plain, captured = on_device(dtype, False), on_device(dtype, True)
    caches = [target.start(2, 90) for target in (plain, captured)]
    tokens = torch.arange(16, device=DEVICE).view(2, 8)
    counts = torch.tensor([8, 5], device=DEVICE)
    tree = None if parents is None else torch.tensor([parents, parents], device=DEVICE)
    for target, cache in zip((plain, captured), caches, strict=True):
        target.prefill(cache, tokens, counts)
        cache.settle(8)
    for seed in range(4):
        drawn = torch.randint(32, (2, 4), generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        draft = Draft(drawn[:, 1:], torch.full_like(counts, 3), parents=tree)
        scores = [
            target.score(cache, drawn[:, 0], draft, (1,))
            for target, cache in zip((plain, captured), caches, strict=True)
        ]
        torch.testing.assert_close(scores[0].logits, scores[1].logits)
        torch.testing.assert_close(scores[0].hidden[1], scores[1].hidden[1])
        for cache in caches:
            cache.keep(None, torch.ones_like(counts))


@pytest.mark.parametrize("captured", [False, True], ids=["launched", "captured"])
@pytest.mark.parametrize("name", PROPOSERS)
def test_greedy_text_in_float32_is_that_of_the_cpu(name, captured):
    on_cpu = random_target(dtype=torch.float32)
    expected = generate(on_cpu, PROMPTS, max_new_tokens=40).tokens
    target = on_device(torch.float32, captured)
    found = generate(target, PROMPTS, PROPOSERS[name](target), k=3, max_new_tokens=40).tokens
    assert_same_or_tie(on_cpu, PROMPTS, expected, found)


@pytest.mark.parametrize("captured", [False, True], ids=["launched", "captured"])
@pytest.mark.parametrize("name", PROPOSERS)
def test_bfloat16_writes_its_own_plain_text(name, captured):
    target = on_device(torch.bfloat16, captured)
    expected = generate(target, PROMPTS, max_new_tokens=40).tokens
    found = generate(target, PROMPTS, PROPOSERS[name](target), k=3, max_new_tokens=40).tokens
    assert_same_or_tie(target, PROMPTS, expected, found, BFLOAT16_GAP)


@pytest.mark.parametrize("name", ["plain", "ngram", "suffix"])
def test_a_seed_fixes_the_text_on_either_device(name):
    """In float64, where two devices agree to 1e-12, the same uniforms draw the same tokens."""
    on_cpu, target = random_target(), on_device(torch.float64, True)
    how = {"sampling": WARM, "seed": 5, "max_new_tokens": 30}
    expected = generate(on_cpu, PROMPTS, **how).tokens
    assert generate(target, PROMPTS, PROPOSERS[name](target), k=3, **how).tokens == expected


@pytest.mark.parametrize("captured", [False, True], ids=["launched", "captured"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("name", PROPOSERS)
def test_a_step_waits_for_nothing_but_its_report(name, sampling, captured):
    """torch raises at any operation that makes the host wait for the device."""
    target = on_device(torch.float32, captured)
    asked = Request.checked(
        target, PROMPTS, PROPOSERS[name](target), None, sampling, "auto", 30, None
    )
    loop = Loop(target, asked, CounterRandomness([1, 2, 3], DEVICE))
    for step in range(3):  # constants are copied and graphs captured in the first one
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            admitted = loop.propose()
            report = loop.advance(admitted, loop.score(admitted.draft))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert report.device.type == DEVICE
        loop.cache.settle(int(loop.context.lengths.max()))


@pytest.mark.model
@pytest.mark.parametrize("captured", [False, True], ids=["launched", "captured"])
def test_the_real_model_writes_its_text_on_cuda(captured):
    on_cpu = load_target()
    chosen = load_prompts("code_edit", split="dev")[:2]
    prompts = [on_cpu.encode_chat(p.text, p.prefix) for p in chosen]
    expected = generate(on_cpu, prompts, max_new_tokens=48).tokens
    target = load_target(dtype=torch.float32, device=DEVICE, graphs=captured)
    for proposer in (None, NGram(), DraftModel(target)):
        found = generate(target, prompts, proposer, max_new_tokens=48).tokens
        assert_same_or_tie(on_cpu, prompts, expected, found)
    halves = load_target(device=DEVICE, graphs=captured)
    assert halves.dtype == torch.bfloat16
    expected = generate(halves, prompts, max_new_tokens=48).tokens
    found = generate(halves, prompts, NGram(), max_new_tokens=48).tokens
    assert_same_or_tie(halves, prompts, expected, found, BFLOAT16_GAP)
