"""Forests of laws: what is recorded is what the two models say, at any temperature."""

import json

import pytest
import torch

from specdec_lab.study import recordings, tree_worth
from specdec_lab.study.law_forest import DEPTH, MOST_ENTRIES, RAREST, TOP_K, grow, laws_at
from toys import random_target

IDS = [3, 1, 4, 1, 5]
SOME = 40


@pytest.fixture(scope="module")
def models():
    return random_target(1, vocab_size=12), random_target(2, vocab_size=12)


@pytest.fixture(scope="module")
def place(models):
    return grow(*models, IDS, most=SOME)


def law_behind(model, text, temperature):
    """Among the TOP_K likeliest tokens, as a dict."""
    with torch.no_grad():
        states, _ = model.model(torch.tensor([[*IDS, *text]]))
        logits = model.model.head(states)[0, -1].double()
    found = (logits / temperature).topk(TOP_K)
    return dict(zip(found.indices.tolist(), found.values.softmax(0).tolist(), strict=True))


def texts_of(place):
    """The tokens of every entry behind the place."""
    texts = [()]
    for link in place["links"]:
        parent, slot = divmod(link, TOP_K)
        texts.append((*texts[parent], place["tokens"][parent][slot]))
    return texts


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_laws_are_those_of_the_models(models, place, temperature):
    forest = laws_at([place], temperature)
    for entry, text in list(enumerate(texts_of(place)))[::7]:
        p, q = (law_behind(model, text, temperature) for model in models)
        tokens = place["tokens"][entry]
        assert forest.draft_probs[entry].tolist() == pytest.approx([q[x] for x in tokens], abs=0.01)
        want = [p.get(x, 0.0) for x in tokens]
        assert forest.target_probs[entry, :-1].tolist() == pytest.approx(want, abs=0.02)
        assert float(forest.target_probs[entry].sum()) == pytest.approx(1, abs=1e-12)


def test_without_temperature_both_take_their_favourites(models, place):
    forest = laws_at([place], 0)
    assert forest.draft_probs[:, 0].tolist() == [1.0] * SOME
    assert set(forest.target_probs.flatten().tolist()) == {0.0, 1.0}
    p = law_behind(models[0], (), 1.0)
    favourite = max(p, key=p.get)
    column = place["tokens"][0].index(favourite) if favourite in place["tokens"][0] else TOP_K
    assert int(forest.target_probs[0].argmax()) == column
    assert torch.equal(forest.graded, laws_at([place], 1.0).draft_probs)


def test_likely_texts_are_entries_and_favourites_go_deep(place):
    forest = laws_at([place], 1.0)
    paths = forest.path_probs(forest.draft_probs)
    is_entry = forest.child >= 0
    assert int(forest.depth.max()) >= SOME // 8  # a favourite with every forward
    spare = paths[~is_entry & (forest.depth < DEPTH - 1)[:, None]].max()
    assert paths[is_entry].sort(descending=True).values[SOME // 2] >= spare > RAREST


def test_places_stand_side_by_side(models, place):
    other = grow(*models, IDS[:3], most=20)
    both = laws_at([place, other], 1.0)
    for worth in (
        lambda forest: tree_worth.by_block(forest, 3),
        lambda forest: tree_worth.by_reject(forest, [2, 1]),
        lambda forest: tree_worth.by_match(forest, tree_worth.best_nodes(forest, 6, 3)),
    ):
        alone = [float(worth(laws_at([one], 1.0))) for one in (place, other)]
        assert worth(both).tolist() == pytest.approx(alone, abs=1e-12)


def test_nothing_is_drafted_behind_the_end_token(models):
    target, draft = models
    ended = random_target(2, vocab_size=12, eos_ids=tuple(range(12)))
    assert len(grow(target, ended, IDS, most=20)["draft"]) == 1
    assert len(grow(target, draft, IDS, most=20)["draft"]) == 20


def test_the_recorded_forest_is_small_and_whole():
    whole = recordings.load("12_laws")
    assert whole["top_k"] == TOP_K
    assert len(json.dumps(whole)) < 300_000
    for places in whole["drafts"].values():
        assert len(places) == len(whole["places"])
        assert all(len(place["draft"]) <= MOST_ENTRIES for place in places)
        forest = laws_at(places, 1.0)
        drawn = forest.per_place(
            forest.path_probs(forest.draft_probs) * (forest.depth < 3)[:, None]
        )
        assert drawn.min() > 2.5  # three drawn tokens seldom end early
