"""Suffix decoding that drafts trees: the counts against a naive counter, and the loop.

pytest tests/proposers/test_suffix_tree.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Context
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.suffix import Suffix
from specdec_lab.proposers.suffix_counts import blended_tree
from toys import ToyTarget, paths, random_law

VOCAB = 4
PROMPTS = [[0, 1, 2, 0, 1], [3], [2, 2, 2, 2, 2, 2, 2], [1, 3, 0, 1, 3, 0, 1, 3]]


def naive_chances(places, growth, escape) -> dict[tuple[int, ...], float]:
    """The chance of every beginning that the continuations of ``places`` share, in words: of the
    weight that goes on from its parent, the share that says its token.
    """
    chances = {(): 1.0}
    for depth in range(1, 4):
        for path in {tuple(rest[:depth]) for _, rest in places if len(rest) >= depth}:
            asked, said = escape, 0.0
            for matched, rest in places:
                weight = growth ** (matched + depth - 1)
                if len(rest) >= depth and tuple(rest[: depth - 1]) == path[:-1]:
                    asked += weight
                    said += weight * (rest[depth - 1] == path[-1])
            chances[path] = chances[path[:-1]] * said / asked
    return chances


@settings(max_examples=40, deadline=None)
@given(data=st.data(), alphabet=st.integers(1, 3), least=st.sampled_from([0.0, 0.05, 0.3]))
def test_the_blended_tree_equals_the_naive_one(data, alphabet, least):
    rest = st.lists(st.integers(0, alphabet - 1), max_size=3)
    rests = data.draw(st.lists(rest, min_size=6, max_size=6))
    matched = sorted(data.draw(st.lists(st.integers(0, 5), min_size=6, max_size=6)), reverse=True)
    size = data.draw(st.integers(1, 12))
    following = torch.tensor([[(r + [-1] * 3)[:3] for r in rests]])
    tree = blended_tree(torch.tensor([matched]), following, size, least, growth=3.0, escape=5.0)
    count = int(tree.count)
    found = paths((), tree.tokens[0, :count].tolist(), tree.parents[0, :count].tolist())[1:]
    voting = [(m, r) for m, r in zip(matched, rests, strict=True) if m > 0]
    known = naive_chances(voting, 3.0, 5.0)
    best = sorted((c for path, c in known.items() if path and c >= least), reverse=True)
    assert tree.probs[0, :count].tolist() == pytest.approx(best[:size])
    assert [known[path] for path in found] == pytest.approx(best[:size])
    assert len(set(found)) == len(found)


def one_hot(token: int) -> list[float]:
    return [float(token == i) for i in range(VOCAB)]


def cycle_with_slips(context: tuple[int, ...]) -> list[float]:
    """0, 1, 2, 3, 0, ... but every seventh token breaks the cycle: drafts of every fate."""
    return one_hot((context[-1] + (3 if len(context) % 7 == 0 else 1)) % VOCAB)


def test_greedy_text_is_that_of_plain_decoding():
    target = ToyTarget(cycle_with_slips, VOCAB)
    plain = generate(target, PROMPTS, max_new_tokens=40)
    for k in (1, 4, 9):
        proposer = Suffix(tree=True)
        for _ in range(2):  # the second time with the first answers as history
            got = generate(target, PROMPTS, proposer, k=k, max_new_tokens=40)
            assert got.tokens == plain.tokens
            assert 0 < got.trace.num_accepted < got.trace.num_drafted


def test_a_seed_gives_the_text_of_plain_sampling_and_a_row_is_alone():
    target = ToyTarget(random_law(3, VOCAB), VOCAB)
    asked = {"sampling": Sampling(temperature=1.0), "seed": 11, "max_new_tokens": 30}
    plain = generate(target, PROMPTS, **asked)
    together = generate(target, PROMPTS, Suffix(tree=True), k=9, **asked)
    assert together.tokens == plain.tokens
    for prompt, steps in zip(PROMPTS, together.trace.rows, strict=True):
        alone = generate(target, [prompt], Suffix(tree=True), k=9, **asked)
        got = [(s.drafted, s.parents, s.path) for s in alone.trace.rows[0]]
        assert got == [(s.drafted, s.parents, s.path) for s in steps]


def test_branches_catch_what_a_chain_misses():
    """A text that goes two ways behind each beginning, by turns."""
    text = [0, 1, 0, 2, 0, 1, 3, 0, 2, 3] * 2

    def law(context):
        return one_hot(text[len(context) % len(text)] if len(context) % 3 else 3)

    target = ToyTarget(law, VOCAB)
    asked = {"k": 8, "max_new_tokens": 58}
    chain, tree = (generate(target, [[0]], Suffix(tree=t), **asked) for t in (False, True))
    assert tree.tokens == chain.tokens
    assert tree.trace.num_forwards < chain.trace.num_forwards


@pytest.mark.parametrize("texts", [[], [[1, 2, 3]]])
def test_reads_nothing_on_the_host(texts):
    proposer = Suffix(tree=True)
    for text in texts:
        proposer.remember(text)
    tokens = torch.zeros(3, 40, dtype=torch.long, device="meta")
    lengths = torch.ones(3, dtype=torch.long, device="meta")
    proposer.start(3, 40)
    for _ in range(3):
        draft = proposer.propose(Context(tokens, lengths, lengths), 9, Sampling(), None)
        assert draft.tokens.shape == draft.parents.shape == (3, 9)
        assert draft.parents.is_meta
        proposer.observe(tokens[:, :2], lengths, {})
