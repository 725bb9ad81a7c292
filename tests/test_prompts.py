"""The prompt files: well formed, unique, long enough to copy from where they promise it."""

import pytest

from specdec_lab.prompts import Prompt, domains, load_prompts


@pytest.mark.parametrize("domain", domains())
def test_every_prompt_is_complete_and_named_once(domain):
    prompts = load_prompts(domain)
    assert len({p.name for p in prompts}) == len(prompts) >= 3
    assert all(p.text.strip() and p.language in ("en", "tr") for p in prompts)


def test_quotations_begin_with_words_of_their_passage():
    for prompt in load_prompts("quotation"):
        quoted = prompt.prefix.split('"')[1]
        assert quoted in prompt.text


def test_language_filter_and_unknown_domain():
    assert {p.language for p in load_prompts("quotation", "tr")} == {"tr"}
    with pytest.raises(ValueError, match="chat"):
        load_prompts("poems")


def test_ids_come_from_the_chat_template_once():
    class Target:
        def encode_chat(self, text, prefix):
            return [len(text), len(prefix)]

    assert Prompt("a", "chat", "en", "abc", "de").ids(Target()) == [3, 2]
