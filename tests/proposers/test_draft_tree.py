"""A draft model that writes trees: exact, in step with its cache, and better than its own chain.

pytest tests/proposers/test_draft_tree.py
"""

import pytest
import torch

from recorded_graphs import check_drafts_from_graphs
from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_tree import DraftTree
from toys import PROMPT, random_target, sequence_law, whole_law

PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
WARM = Sampling(temperature=0.9)


def law_of(target):
    """The tiny target's own law, from whole texts."""

    @torch.no_grad()
    def law(text):
        states, _ = target.model(torch.tensor([text]))
        return target.model.head(states)[0, -1].softmax(-1).tolist()

    return law


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_whole_generations_have_the_targets_law(drafting):
    target, draft = (random_target(seed, vocab_size=3) for seed in (1, 2))
    tree = DraftTree(target, draft, drafting, width=2, depth=2, branching=(2,))
    got = whole_law(target, tree, 2, "auto", 3)
    want = sequence_law(law_of(target), PROMPT, 3)
    assert max(abs(got.get(x, 0) - want[x]) for x in want) < 1e-12


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "warm"])
def test_the_text_is_that_of_plain_decoding(sampling):
    target, draft = random_target(1, vocab_size=10), random_target(2, vocab_size=10)
    asked = {"sampling": sampling, "seed": 5, "max_new_tokens": 20}
    plain = generate(target, PROMPTS, **asked)
    got = generate(target, PROMPTS, DraftTree(target, draft, "greedy"), k=8, **asked)
    assert got.tokens == plain.tokens
    assert got.trace.num_accepted > 0


def test_the_target_as_its_own_draft_is_accepted_to_the_last_leaf():
    """Any fault of cache, positions or catching up would show as a refusal."""
    target = random_target(3, vocab_size=12)
    for drafting, k in (("greedy", 9), ("probabilistic", 17)):
        own = DraftTree(target, target, drafting)
        trace = generate(target, PROMPTS, own, k=k, max_new_tokens=30).trace
        assert trace.num_rejected == 0
        assert max(step.num_accepted for step in trace.steps) == 4
        assert trace.tau > 3
    warm = generate(
        target, PROMPTS, DraftTree(target, target), k=17, sampling=WARM, seed=1, max_new_tokens=30
    )
    assert warm.trace.num_rejected == 0  # the first child is drawn from the target's very law


def test_penalties_follow_the_path():
    target = random_target(3, vocab_size=12)
    sampling = Sampling(
        temperature=0.8, presence_penalty=0.7, repetition_penalty=1.4, bias={1: 0.5}
    )
    own = DraftTree(target, target, branching=(1, 1, 1))
    got = generate(target, PROMPTS, own, k=3, sampling=sampling, seed=2, max_new_tokens=24)
    assert got.trace.num_rejected == 0


def test_what_a_tree_leaves_behind_is_forgotten():
    """The cache holds the committed text but the accepted path, whatever was read for the tree."""
    target = random_target(4, vocab_size=10)
    tree = DraftTree(target, random_target(5, vocab_size=10), "greedy")
    asked = Request.checked(target, PROMPTS, tree, 8, Sampling(), "auto", 20, None)
    loop = Loop(target, asked, CounterRandomness([1, 2, 3]))
    for _ in range(4):
        before = loop.context.lengths.clone()
        step = loop.propose()
        assert torch.equal(tree.num_read, before)
        loop.advance(step, loop.score(step.draft))
        assert (tree.num_read <= loop.context.lengths - 1).all()


def test_a_tree_gets_further_than_the_chain_of_the_same_draft():
    target, draft = random_target(1, vocab_size=10), random_target(1, vocab_size=10)
    with torch.no_grad():  # a draft that is often right, and often second
        draft.model.norm.weight.mul_(0.7)
        draft.model.layers[1].attention_norm.weight.mul_(0.6)
    tau = {}
    for name, width in (("chain", 1), ("tree", 3)):
        drafter = DraftTree(target, draft, "greedy", width=width, depth=4)
        tau[name] = generate(target, PROMPTS, drafter, k=12, max_new_tokens=40).trace.tau
    assert tau["tree"] > tau["chain"] > 1


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_whole_step_on_meta_reads_nothing(drafting):
    target = random_target(dtype=torch.float32, device="meta")
    draft = random_target(1, dtype=torch.float32, device="meta")
    tree = DraftTree(target, draft, drafting, width=2, depth=2, branching=(2, 1))
    asked = Request.checked(target, [[1, 2], [3]], tree, 4, WARM, "auto", 9, None)
    loop = Loop(target, asked, CounterRandomness([1, 2], "meta"))
    for _ in range(2):
        step = loop.propose()
        assert loop.advance(step, loop.score(step.draft)).shape == (2, 4 * 4 + 7)


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "warm"])
def test_replayed_steps_draft_the_same(captures, sampling):
    def make(target):
        draft = random_target(1, max_context=256, graphs=target.graphs)
        return DraftTree(target, draft, width=2, depth=2, branching=(2, 1))

    check_drafts_from_graphs(captures, make, sampling, k=4)


def test_it_is_on_the_menu_and_says_what_is_wrong():
    target = random_target(vocab_size=8)
    made = load_proposer({"method": "draft_tree", "model": target, "width": 2}, target)
    assert made.shape.width == 2
    assert made.default_k == 12
    with pytest.raises(ValueError, match="width must be a whole number, from 1 to 16"):
        DraftTree(target, target, width=0)
    with pytest.raises(ValueError, match="branching must name"):
        DraftTree(target, target, branching=())
    with pytest.raises(ValueError, match="call start and observe"):
        made.propose(None, 3, Sampling(), None)
