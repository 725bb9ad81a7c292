"""The prompt files: well formed, unique, long enough to copy from where they promise it."""

import re

import pytest

from specdec_lab.prompts import SPLITS, Prompt, domains, load_prompts

TURKISH = ("chat", "code", "code_edit", "copy", "json", "quotation", "summary")
FIRST = {  # recorded measurements take the first four
    "chat": ["sleep", "plants", "bicycle", "neighbour"],
    "code": ["median", "csv_totals", "stack", "rename"],
    "quotation": ["river", "loom", "bread", "ankara"],
}


def everything() -> list[Prompt]:
    return [p for d in domains() for s in SPLITS for p in load_prompts(d, split=s)]


def paragraphs(prompt: Prompt) -> set[str]:
    """The long paragraphs of a prompt: passages, functions, records."""
    return {part for part in prompt.text.split("\n\n") if len(part) > 90}


@pytest.mark.parametrize("domain", domains())
def test_every_domain_has_about_five_prompts_and_some_to_tune_on(domain):
    assert len(load_prompts(domain, "en")) >= 5
    assert len(load_prompts(domain, "tr")) == (4 if domain in TURKISH else 0)
    assert load_prompts(domain, "en", split="dev")
    assert bool(load_prompts(domain, "tr", split="dev")) == (domain in TURKISH)


def test_every_prompt_is_complete_and_named_once():
    names = [p.name for p in everything()]
    assert len(set(names)) == len(names)
    assert all(p.text.strip() and p.language in ("en", "tr") for p in everything())
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


def test_what_is_tuned_on_is_not_measured_on():
    dev = [p for p in everything() if p.split == "dev"]
    rest = [p for p in everything() if p.split == "eval"]
    assert not set().union(*map(paragraphs, dev)) & set().union(*map(paragraphs, rest))
    assert not {p.text for p in dev} & {p.text for p in rest}


@pytest.mark.parametrize("domain", FIRST)
def test_the_first_four_stay_what_recordings_were_made_with(domain):
    assert [p.name for p in load_prompts(domain)[:4]] == FIRST[domain]


@pytest.mark.parametrize("split", SPLITS)
def test_quotations_begin_with_words_of_their_passage(split):
    for prompt in load_prompts("quotation", split=split):
        quoted = prompt.prefix.split('"')[1]
        assert quoted in prompt.text


@pytest.mark.parametrize("split", SPLITS)
def test_records_edits_and_copies_are_begun(split):
    for prompt in load_prompts("json", split=split):
        assert prompt.prefix.count("\n") == 1  # the first record is done, the second begun
        assert prompt.text.count('": ') >= 4  # the example record
    assert all("def " in p.prefix for p in load_prompts("code_edit", split=split))
    assert all(p.prefix in p.text for p in load_prompts("copy", split=split))


def test_language_filter_unknown_domain_and_unknown_split():
    assert {p.language for p in load_prompts("quotation", "tr")} == {"tr"}
    with pytest.raises(ValueError, match="chat"):
        load_prompts("poems")
    with pytest.raises(ValueError, match="eval or dev"):
        load_prompts("chat", split="test")


def test_ids_come_from_the_chat_template_once():
    class Target:
        def encode_chat(self, text, prefix):
            return [len(text), len(prefix)]

    assert Prompt("a", "chat", "en", "abc", "de").ids(Target()) == [3, 2]
