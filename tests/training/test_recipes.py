"""Recipes of prompts: rebuilt word for word, split by document, and free of fetched text."""

import json

import pytest

from specdec_lab.training.recipes import HELDOUT_SHARE, Passage, Recipe, split_of

TEXTS = {"book": {"one": "The quick brown fox jumps."}}
RECIPE = Recipe(
    domain="chat",
    language="en",
    document="book/one",
    message=("Why ", Passage("book", "one", 4, 5), "?"),
    prefix=(Passage("book", "one", 10, 5),),
)


def test_a_recipe_renders_its_parts_in_order():
    assert RECIPE.render(TEXTS.get) == ("Why quick?", "brown")


def test_a_recipe_survives_json_and_names_text_by_place_only():
    written = json.dumps(RECIPE.to_json())
    assert Recipe.from_json(json.loads(written)) == RECIPE
    assert "quick" not in written


@pytest.mark.parametrize(
    "passage", [Passage("book", "two", 0, 3), Passage("book", "one", 20, 30)], ids=["gone", "short"]
)
def test_a_passage_that_is_not_there_is_said(passage):
    with pytest.raises(ValueError, match="the source is not the one"):
        passage.read(TEXTS.get)


def test_the_key_follows_the_words_and_not_the_labels():
    same = Recipe("code", "tr", "elsewhere", RECIPE.message, RECIPE.prefix)
    assert same.key == RECIPE.key
    assert Recipe("chat", "en", "book/one", RECIPE.message).key != RECIPE.key


def test_the_split_takes_about_its_share_of_documents():
    splits = [split_of(f"document {i}") for i in range(4000)]
    assert splits == [split_of(f"document {i}") for i in range(4000)]
    assert splits.count("heldout") == pytest.approx(4000 / HELDOUT_SHARE, rel=0.2)
