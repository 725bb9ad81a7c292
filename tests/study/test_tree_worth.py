"""Expected accepted tokens: closed forms on a forest of laws against enumerated rules."""

from itertools import product

import pytest
import torch

from specdec_lab.study import tree_worth
from specdec_lab.study.exact_laws import step_law, tokens_per_step, toy_law, tree_step_law
from specdec_lab.study.law_forest import LawForest

DEEP = 3  # tokens that may be drafted one after the other


def forest_of(*pairs, deep=DEEP) -> LawForest:
    """A place for every pair (target law, draft law) over three tokens, all texts entries."""
    texts = [text for n in range(deep) for text in product(range(3), repeat=n)]
    rows = [(place, text) for place in range(len(pairs)) for text in texts]
    parent = [rows.index((r, t[:-1])) if t else -1 for r, t in rows]
    p = torch.tensor([[*pairs[r][0](t), 0.0] for r, t in rows], dtype=torch.float64)
    q = torch.tensor([pairs[r][1](t) for r, t in rows], dtype=torch.float64)
    slot = torch.tensor([t[-1] if t else 0 for _, t in rows])
    place = torch.tensor([r for r, _ in rows])
    return LawForest(p, q, q, torch.tensor(parent), slot, place)


def laws(seed):
    return toy_law(seed), toy_law(seed + 100)


def enumerated(rule, pair, *how, **options) -> float:
    step = tree_step_law if isinstance(how[0], tuple) else step_law
    return tokens_per_step(step(rule, *pair, *how, **options)) - 1


@pytest.mark.parametrize(("k", "seeds"), [(1, (3, 6)), (2, (3, 6)), (3, (6,))])
def test_chains_judged_by_token_and_by_block(k, seeds):
    forest = forest_of(*map(laws, seeds))
    by_token = [enumerated("reject", laws(seed), k) for seed in seeds]
    by_block = [enumerated("block", laws(seed), k) for seed in seeds]
    assert tree_worth.by_reject(forest, [1] * k).tolist() == pytest.approx(by_token, abs=1e-12)
    assert tree_worth.by_block(forest, k).tolist() == pytest.approx(by_block, abs=1e-12)


@pytest.mark.parametrize("branching", [(2,), (3,), (2, 1), (1, 2)])
def test_drawn_trees(branching):
    forest = forest_of(laws(6))
    want = enumerated("reject", laws(6), branching)
    assert tree_worth.by_reject(forest, branching).tolist() == pytest.approx([want], abs=1e-12)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_fixed_trees_are_those_of_the_production_code(size):
    forest = forest_of(laws(6), laws(3))
    nodes = tree_worth.best_nodes(forest, size, depth=2)
    assert forest.per_place(nodes.double()).tolist() == [size, size]
    want = [enumerated("match", laws(seed), (3, 3), size=size) for seed in (6, 3)]
    assert tree_worth.by_match(forest, nodes).tolist() == pytest.approx(want, abs=1e-12)


def test_a_chain_of_favourites():
    target_law, draft_law = toy_law(6), toy_law(106)

    def by_rank(tokens):  # children stand with the favourite first, as in a recorded forest
        return sorted(range(3), key=lambda x: -draft_law(tokens)[x])

    def renamed(law):
        def behind(slots):
            tokens = ()
            for slot in slots:
                tokens += (by_rank(tokens)[slot],)
            return [law(tokens)[x] for x in by_rank(tokens)]

        return behind

    forest = forest_of((renamed(target_law), renamed(draft_law)))
    nodes = tree_worth.greedy_chain(forest, 2)
    want = enumerated("match", (target_law, draft_law), 2, argmax=True, tell_law=False)
    assert tree_worth.by_match(forest, nodes).tolist() == pytest.approx([want], abs=1e-12)


def test_a_draft_ends_behind_what_is_no_entry():
    whole, short = forest_of(laws(6)), forest_of(laws(6), deep=1)
    assert torch.equal(tree_worth.by_block(short, 3), tree_worth.by_block(whole, 1))
    assert torch.equal(
        tree_worth.by_reject(short, [2, 1]), tree_worth.by_reject(whole, [2])
    )  # fmt: skip
    assert int(tree_worth.greedy_chain(short, 3).sum()) == 1


def test_tokens_that_are_never_drafted_are_never_accepted():
    p = torch.tensor([[0.2, 0.1, 0.7]], dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    both = tree_worth.accepted_apart(p, q, 2)
    assert both.sum().item() == pytest.approx(0.3, abs=1e-12)  # what the children have in all
    assert (both <= p[:, :-1] + 1e-12).all()


def test_the_best_drawn_tree_is_found_among_all_that_narrow():
    forest = forest_of(laws(6), laws(2))
    shape, worth = tree_worth.best_drawn_tree(forest, size=6, depth=3)
    assert tree_worth.num_nodes(shape) <= 6
    assert torch.equal(worth, tree_worth.by_reject(forest, shape))
    for other in ((1, 1, 1), (2, 1, 1), (2, 2), (3, 1), (3,)):
        assert tree_worth.num_nodes(other) <= 6
        assert worth.sum() >= tree_worth.by_reject(forest, other).sum()


def test_in_as_many_passes():
    forest = forest_of(laws(6), laws(2))
    tokens = tree_worth.in_passes(forest, size=5, depth=3)
    block, token, tree = (tokens[n] for n in ("drawn chain, block", "drawn chain", "drawn tree"))
    assert (block >= token - 1e-12).all()
    assert tree.sum() >= token.sum()
    assert all((worth >= 1).all() and (worth <= 4).all() for worth in tokens.values())
    assert torch.equal(token, 1 + tree_worth.by_reject(forest, [1, 1, 1]))


def test_what_theory_orders_is_ordered():
    for seed in range(1, 6):
        forest = forest_of(laws(seed))
        chain = tree_worth.by_reject(forest, [1, 1, 1])
        assert tree_worth.by_block(forest, 3) >= chain - 1e-12
        assert tree_worth.by_reject(forest, [2, 1, 1]) >= chain - 1e-12
        size = {"size": 4, "depth": 3}
        found = tree_worth.by_match(forest, tree_worth.best_nodes(forest, **size))
        best = tree_worth.best_nodes(forest, **size, scores=forest.target_probs[:, :-1])
        assert tree_worth.by_match(forest, best) >= found
