"""Trees grown from a drafter's probabilities, against brute force on toy laws.

pytest tests/proposers/test_tree_expansion.py
"""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.randomness import CounterRandomness, enumerate_laws
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.tree import ancestors, misplaced
from specdec_lab.proposers.tree_expansion import expand_and_rerank, sample_tree
from toys import paths, random_law, random_target

VOCAB = 5


def texts_of(draft: Draft) -> list[list[tuple[int, ...]]]:
    """The path to every node that counts, per row."""
    counts = draft.count.tolist()
    rows = zip(draft.tokens.tolist(), draft.parents.tolist(), counts, strict=True)
    return [paths((), tokens[:n], parents[:n])[1:] for tokens, parents, n in rows]


class Drafter:
    """Row b follows laws[b]; remembers how wide it was asked."""

    def __init__(self, laws, ids=None):
        self.laws, self.asked = laws, []
        self.columns = {t: i for i, t in enumerate(ids)} if ids else None

    @property
    def first(self):
        return torch.tensor([law(()) for law in self.laws], dtype=torch.float64)

    def extend(self, fed, width):
        self.asked.append(width)
        assert not misplaced(fed.parents).any()
        rows = []
        for law, tokens, parents in zip(
            self.laws, fed.tokens.tolist(), fed.parents.tolist(), strict=True
        ):
            texts = paths((), tokens, parents)[1:]
            if self.columns:
                texts = [tuple(self.columns[t] for t in text) for text in texts]
            rows.append([law(text) for text in texts[-width:]])
        return torch.tensor(rows, dtype=torch.float64)


def brute_force(law, size, width, depth) -> list[tuple[int, ...]]:
    """EAGLE-2 in words: the best nodes of a level are expanded, the best of all that were seen
    are kept.
    """

    def chance(text) -> float:
        return math.prod(law(text[:i])[token] for i, token in enumerate(text))

    frontier, seen = [()], []
    for _ in range(depth):
        children = []
        for text in frontier:
            best = sorted(range(VOCAB), key=lambda t, x=text: -law(x)[t])[:width]
            children += [(*text, token) for token in best]
        seen += children
        frontier = sorted(children, key=lambda text: -chance(text))[:width]
    return sorted(seen, key=lambda text: -chance(text))[:size]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 500), st.integers(1, 20), st.integers(1, 4), st.integers(1, 4))
def test_expand_and_rerank_is_eagle_2(seed, size, width, depth):
    laws = [random_law(seed + b, VOCAB) for b in range(2)]
    drafter = Drafter(laws)
    how = {"size": size, "width": width, "depth": depth}
    draft = expand_and_rerank(drafter.first, drafter.extend, **how)
    assert draft.probs is None
    assert drafter.asked == [width] * (depth - 1)
    assert not misplaced(draft.parents).any()
    for law, texts in zip(laws, texts_of(draft), strict=True):
        assert texts == brute_force(law, **how)


def test_nodes_without_a_chance_do_not_count():
    drafter = Drafter([random_law(3, VOCAB, zeros=4), random_law(4, VOCAB)])
    draft = expand_and_rerank(drafter.first, drafter.extend, size=9, width=3, depth=2)
    assert draft.count.tolist() == [2, 9]
    assert [len(text) for text in texts_of(draft)[0]] == [1, 2]


def test_equal_scores_leave_parents_in_front():
    certain = Drafter([lambda text: [1.0, 0, 0, 0, 0]])
    draft = expand_and_rerank(certain.first, certain.extend, size=4, width=2, depth=4)
    assert texts_of(draft) == [[(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]]


def test_a_draft_vocabulary_is_mapped_to_target_ids():
    ids = torch.tensor([3, 10, 11, 20, 21])
    plain, mapped = Drafter([random_law(5, VOCAB)]), Drafter([random_law(5, VOCAB)], ids.tolist())
    how = {"size": 7, "width": 3, "depth": 3}
    want = expand_and_rerank(plain.first, plain.extend, **how)
    got = expand_and_rerank(mapped.first, mapped.extend, **how, draft_to_target=ids)
    assert torch.equal(got.tokens, ids[want.tokens])
    assert torch.equal(got.parents, want.parents)
    sampled = sample_tree(
        mapped.first,
        mapped.extend,
        branching=(2, 1),
        lengths=torch.ones(1, dtype=torch.long),
        randomness=CounterRandomness([1]),
        draft_to_target=ids,
    )
    assert set(sampled.tokens.flatten().tolist()) <= set(ids.tolist())
    assert sampled.draft_to_target is ids


def sampled(drafter, branching, randomness) -> Draft:
    lengths = torch.full((len(drafter.laws),), 3)
    return sample_tree(
        drafter.first, drafter.extend, branching=branching, lengths=lengths, randomness=randomness
    )


def test_children_are_drawn_without_replacement_in_their_order():
    """The law of the ordered pair is q(x) q(y) / (1 - q(x)); each node says what it came from."""
    law = random_law(6, 3)
    q = law(())

    def pair(randomness, which):
        draft = sampled(Drafter([law] * len(which)), (2,), randomness)
        for row, probs in zip(draft.tokens.tolist(), draft.probs.tolist(), strict=True):
            left = [p if token != row[0] else 0 for token, p in enumerate(q)]
            assert probs[0] == pytest.approx(q, abs=1e-12)
            assert probs[1] == pytest.approx([p / sum(left) for p in left], abs=1e-12)
        return [tuple(row) for row in draft.tokens.tolist()]

    got = enumerate_laws(pair, 1)[0]
    for x, y in itertools.permutations(range(3), 2):
        assert got[x, y] == pytest.approx(q[x] * q[y] / (1 - q[x]), abs=1e-12)


def test_a_sampled_tree_has_the_shape_asked_for():
    drafter = Drafter([random_law(b, VOCAB) for b in range(3)])
    draft = sampled(drafter, (3, 2, 1), CounterRandomness([1, 2, 3]))
    assert drafter.asked == [3, 6]
    assert draft.count.tolist() == [15] * 3
    assert draft.parents[0].tolist() == [-1] * 3 + [0, 0, 1, 1, 2, 2] + [3, 4, 5, 6, 7, 8]
    for texts in texts_of(draft):
        assert len(set(texts)) == 15  # no sibling twice
    alone = sampled(Drafter([random_law(1, VOCAB)]), (3, 2, 1), CounterRandomness([2]))
    assert torch.equal(alone.tokens[0], draft.tokens[1])
    assert torch.equal(alone.probs[0], draft.probs[1])


def test_where_nothing_is_left_to_draw_there_is_no_node():
    drafter = Drafter([random_law(1, VOCAB, zeros=3), random_law(2, VOCAB, zeros=4)])
    draft = sampled(drafter, (3, 3), CounterRandomness([1, 2]))
    assert draft.count.tolist() == [6, 2]
    for b, texts in enumerate(texts_of(draft)):
        for text, law in zip(texts, draft.probs[b], strict=False):
            assert law[text[-1]] > 0
            assert law.sum() == pytest.approx(1)


@torch.no_grad()
def test_a_model_reads_the_levels_on_its_own_cache():
    """What is read level by level is what whole texts say; the cache's lengths stay."""
    target = random_target(3, vocab_size=9)
    prompts = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
    counts = torch.tensor([4, 2])
    cache = target.start(2, 32)
    target.prefill(cache, prompts, counts)
    fed = Draft(
        torch.tensor([[7, 8, 1, 2, 3], [4, 5, 6, 7, 8]]),
        torch.tensor([5, 5]),
        parents=torch.tensor([[-1, -1, 0, 1, 1], [-1, -1, 1, 1, 0]]),
    )
    levels = []
    for width, size in ((2, 2), (3, 5)):
        seen = ancestors(fed.parents[:, :size])[:, -width:, 1:]
        levels.append(target.read(cache, fed.tokens[:, size - width : size], seen).logits)
    got = torch.cat(levels, 1)
    assert cache.lengths.tolist() == [4, 2]
    for b, count in enumerate(counts.tolist()):
        prompt = tuple(prompts[b, :count].tolist())
        for node, text in enumerate(
            paths(prompt, fed.tokens[b].tolist(), fed.parents[b].tolist())[1:]
        ):
            states, _ = target.model(torch.tensor([text]))
            want = target.model.head(states)[0, -1]
            torch.testing.assert_close(got[b, node], want, atol=1e-9, rtol=0)


def test_growing_reads_nothing_on_the_host():
    first = torch.zeros(2, VOCAB, device="meta")

    def extend(fed, width):
        assert ancestors(fed.parents).is_meta
        return torch.zeros(2, width, VOCAB, device="meta")

    draft = expand_and_rerank(first, extend, size=9, width=3, depth=3)
    assert draft.tokens.is_meta
    assert draft.parents.shape == (2, 9)
    drawn = sample_tree(
        first,
        extend,
        branching=(2, 2),
        lengths=torch.zeros(2, dtype=torch.long, device="meta"),
        randomness=CounterRandomness([1, 2], "meta"),
    )
    assert drawn.probs.shape == (2, 6, VOCAB)
