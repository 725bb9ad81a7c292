"""A lesson on a tiny model: texts, training, the curve, and a proposer that keeps the text.

pytest tests/study/test_live_training.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.study import live_training
from specdec_lab.study.figures.learning_live import learning_live
from specdec_lab.study.live_training import Lesson, prepare_lesson, train_live
from specdec_lab.training.corpus import load_corpus
from specdec_lab.training.mlp_method import MLPSpeculatorMethod
from specdec_lab.training.recipes import Passage, Recipe
from specdec_lab.training.shards import Entry, Shard, write_shard
from toys import random_target
from training_texts import Written

OPTIONS = {"mlp_speculator": {"num_stages": 2, "width": 16}, "draft_model": {"num_layers": 1}}


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEC_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        target = random_target(dtype=torch.float32)
        prompts = [[i, i + 1] for i in range(1, 11)]
        answers = generate(target, prompts, max_new_tokens=24).tokens
        texts = [Written(*pair) for pair in zip(prompts, answers, strict=True)]
        yield Lesson(target, texts[2:], texts[:2], DraftVocab(range(32), 32))


@pytest.mark.parametrize("method", OPTIONS)
def test_a_draft_learns_and_the_proposer_keeps_the_text(lesson, method):
    run = train_live(lesson, method, steps=18, learning_rate=1e-2, **OPTIONS[method])
    first, last = run.curve[0], run.curve[-1]
    assert (first["step"], last["step"]) == (0, 18)
    assert len(run.curve) == live_training.POINTS + 1
    assert last["loss"] < first["loss"]
    drafter = run.proposer(num_speculative_tokens=2)
    drafted = generate(lesson.target, [[3, 4], [9]], drafter, max_new_tokens=12)
    assert drafted.tokens == generate(lesson.target, [[3, 4], [9]], max_new_tokens=12).tokens
    assert drafted.trace.num_drafted


def test_a_lesson_ends_with_the_same_weights_every_time(lesson):
    options = OPTIONS["mlp_speculator"]
    one, two = (train_live(lesson, "mlp_speculator", steps=5, **options) for _ in range(2))
    assert one.figure_data == two.figure_data
    assert one.num_trained == two.num_trained > 0
    pairs = zip(one.method.tensors().values(), two.method.tensors().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_method_of_the_readers_own_is_trained_too(lesson):
    class Blind(MLPSpeculatorMethod):
        """Stages that read the pending token alone."""

        def logits(self, batch, depth):
            (states,) = batch.hidden.values()
            carried = self.module.first(states[batch.anchors()])
            for number in range(min(depth, self.depth)):
                carried = self.module.stage(number, carried, batch.token_at(0))
                yield self.module.logits(carried)

    run = train_live(lesson, Blind, steps=2, **OPTIONS["mlp_speculator"])
    assert isinstance(run.method, Blind)
    assert [entry["step"] for entry in run.curve] == [0, 1, 2]


def test_the_figure_leaves_out_what_was_judged_too_rarely(lesson):
    data = train_live(lesson, "mlp_speculator", steps=2, **OPTIONS["mlp_speculator"]).figure_data
    for entry in data["curve"]:
        entry["judged"] = [40, 3]
    names = [text.get_text() for text in learning_live(data).axes[1].texts]
    assert [name.strip().rpartition(" ")[0] for name in names] == ["token 1", "cap"]


def test_the_figure_knows_the_versions_of_a_method(lesson):
    data = train_live(lesson, "mlp_speculator", steps=1, **OPTIONS["mlp_speculator"]).figure_data
    assert "EAGLE-3" in learning_live(data | {"method": "eagle_3"}).get_suptitle()


def test_an_unknown_method_is_named_with_the_known_ones(lesson):
    with pytest.raises(ValueError, match="mlp_speculator"):
        train_live(lesson, "magic")


def test_a_lesson_takes_no_fetched_text(monkeypatch):
    """The corpus is asked for prompts of our own words in the domains wanted, and for no others."""
    asked = []

    def load(split, target, num_tokens=None, wanted=None):
        asked.append(wanted)
        return [Written([1], [2, 3]), Written([1], [2, 4])]

    monkeypatch.setattr(live_training, "load_corpus", load)
    lesson = prepare_lesson(random_target(), domains=("maths",), num_tokens=2, vocab_size=8)
    assert [text.answer for text in lesson.learned] == [[2, 3]]
    assert set(lesson.vocab.draft_to_target.tolist()) >= {2, 3, 4}  # counted on all that is known
    own = Recipe("maths", "en", "own/1", ("How much is one and one?",))
    fetched = Recipe("maths", "en", "wiki/1", ("Sum up: ", Passage("wiki", "Sum", 0, 9)))
    other = Recipe("chat", "en", "own/2", ("Hello",))
    assert [asked[0](recipe) for recipe in (own, fetched, other)] == [True, False, False]


def test_a_domain_that_the_corpus_lacks_is_an_error(monkeypatch):
    monkeypatch.setattr(live_training, "load_corpus", lambda *args, **kwargs: [])
    with pytest.raises(ValueError, match="no texts of cooking"):
        prepare_lesson(random_target(), domains=("cooking",))


def test_the_corpus_builds_no_prompt_that_is_not_wanted(tmp_path):
    """The only prompt is made of a fetched source, which is never asked for."""
    recipe = Recipe("maths", "en", "wiki/1", ("Sum up: ", Passage("wiki", "Sum", 0, 9)))
    write_shard(tmp_path / "1.npz", Shard([Entry(recipe, 0.0, 2, 0, "length", [1, 2])], {}))

    def wanted(recipe):
        return recipe.is_own

    split = recipe.split
    assert load_corpus(split, random_target(), tmp_path, texts=None, wanted=wanted) == []
