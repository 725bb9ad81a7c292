"""CUDA graphs of the target's step; those of the drafters are tested with each of them.

pytest tests/decoding/test_graphs.py
"""

import pytest
import torch

from specdec_lab.decoding import graphs
from specdec_lab.decoding.decode import Loop, generate, stream
from specdec_lab.decoding.graphs import StepGraphs, capture
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.ngram import NGram
from toys import random_target

PROMPTS = [[3, 1, 4, 1, 5, 3, 1], [2, 7, 2], [9, 9, 9, 9]]
GREEDY, WARM = Sampling(), Sampling(temperature=0.9)


def prefilled(maker, target, rungs=()):
    """A cache behind two unequal prompts."""
    cache = maker.new_cache(2, 90)
    cache.rungs = rungs
    tokens = torch.arange(16).view(2, 8) % target.vocab_size
    target.prefill(cache, tokens, torch.tensor([8, 5]))
    cache.settle(8)
    return cache


def test_on_the_cpu_a_function_stays_itself():
    def double(x):
        return (2 * x,)

    assert capture(double, [torch.ones(3)]) is double
    assert capture(double, [torch.ones(3, device="meta")]) is double


def test_a_capture_is_replayed_on_new_inputs_and_hands_out_copies(captures):
    python_runs, written = [], torch.zeros(2)

    def step(x):
        python_runs.append(x)
        written.copy_(x)
        return x + 1, x * 2

    replay = graphs.capture(step, [torch.tensor([1.0, 2.0])])
    assert len(python_runs) == graphs.WARM_UPS + 1
    first = replay(torch.tensor([3.0, 4.0]))
    second = replay(torch.tensor([5.0, 6.0]))
    assert [x.tolist() for x in first] == [[4, 5], [6, 8]]
    assert [x.tolist() for x in second] == [[6, 7], [10, 12]]
    assert written.tolist() == [5, 6]
    assert len(python_runs) == graphs.WARM_UPS + 1
    with pytest.raises(ValueError, match="shorter"):
        replay()


@torch.no_grad()
def test_a_replayed_step_is_the_step_at_every_length(captures):
    target = random_target()
    graphed = random_target(graphs=True)
    cache, plain = prefilled(graphed.steps, graphed), prefilled(target.model, target)
    for _ in range(4):
        nodes = torch.randint(32, (2, 3))
        scores = graphed.read(cache, nodes, hidden_layers=(1, 2))
        states, expected = target.model(nodes, plain, (1, 2))
        torch.testing.assert_close(scores.logits, target.model.head(states), rtol=0, atol=1e-12)
        for layer in (1, 2):
            torch.testing.assert_close(scores.hidden[layer], expected[layer], rtol=0, atol=1e-12)
        for one in (cache, plain):
            one.keep(None, torch.tensor([3, 1]))
        assert (cache.max_used, cache.num_written) == (plain.max_used, 0)
    assert captures == [[(2,), (2, 3)]]


@torch.no_grad()
def test_every_number_of_nodes_and_of_keys_has_a_graph_of_its_own(captures):
    target = random_target()
    graphed = random_target(graphs=True)
    cache = prefilled(graphed.steps, graphed, rungs=(16, 32, 48))
    plain = prefilled(target.model, target, rungs=(16, 32, 48))
    for num_nodes in (1, 4, 1, 4, 4, 4):  # the last ones read the second number of keys
        nodes = torch.randint(32, (2, num_nodes))
        logits = graphed.read(cache, nodes).logits
        states, _ = target.model(nodes, plain)
        torch.testing.assert_close(logits, target.model.head(states), rtol=0, atol=1e-12)
        for one in (cache, plain):
            one.keep(None, torch.full((2,), num_nodes))
    assert len(captures) == 3


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_text_from_replayed_steps_is_the_text(captures, sampling):
    target = random_target()
    how = {"k": 3, "sampling": sampling, "seed": 1, "max_new_tokens": 25}
    expected = generate(target, PROMPTS, NGram(), **how).tokens
    graphed = random_target(graphs=True)
    assert generate(graphed, PROMPTS, NGram(), **how).tokens == expected
    count = len(captures)
    assert 1 <= count <= 4  # a draft of up to three tokens, trimmed on the CPU
    assert generate(graphed, PROMPTS, NGram(), **how).tokens == expected
    assert len(captures) == count  # the next request takes over storage and graphs


def test_streams_that_interleave_have_graphs_and_storage_of_their_own(captures):
    target = random_target()
    graphed = random_target(graphs=True)
    texts = [[], []]
    both = [stream(graphed, [prompt], max_new_tokens=8) for prompt in PROMPTS[:2]]
    for steps in zip(*both, strict=True):
        for text, step in zip(texts, steps, strict=True):
            text += step.rows[0].tokens
    assert len(captures) == 2
    expected = [generate(target, [p], max_new_tokens=8).tokens[0] for p in PROMPTS[:2]]
    assert texts == expected


def test_storage_of_another_size_is_let_go():
    steps = StepGraphs(random_target().model)
    held = steps.new_cache(1, 20)
    storages = [held.entries]
    for batch_size in (2, 2, 3):
        cache = steps.new_cache(batch_size, 20)
        assert not cache.entries.any()
        cache.entries.fill_(float("nan"))
        storages.append(cache.entries)
        del cache
    assert storages[1] is storages[2]
    assert len(steps._shelves) == 2  # the one that is held, and the last


def test_storage_may_be_written_to_in_either_mode(captures):
    graphed = random_target(graphs=True)
    with torch.inference_mode():
        generate(graphed, PROMPTS, max_new_tokens=3)
    cache = graphed.start(len(PROMPTS), 10)
    graphed.prefill(cache, torch.zeros(3, 4, dtype=torch.long), torch.full((3,), 4))


def test_a_whole_step_reads_nothing_on_the_host():
    target = random_target(dtype=torch.float32, device="meta", graphs=True)
    asked = Request.checked(target, PROMPTS, NGram(), 3, WARM, "auto", 9, None)
    loop = Loop(target, asked, CounterRandomness([1, 2, 3], "meta"))
    for _ in range(2):
        admitted = loop.propose()
        assert loop.advance(admitted, loop.score(admitted.draft)).is_meta
