"""Streaming without half characters, stop strings, the chat template."""

import random

import pytest

from specdec_lab.decoding.target import Target
from specdec_lab.decoding.text import Detokenizer, StopStrings, chat_ids

TURKISH = "Pijamalı hasta yağız şoföre çabucak güvendi; İğne ığrıp öğütür. 🙂👩‍🔬 naïve — 日本語"


class ByteTokenizer:
    """One id per byte; ids from 256 on are special tokens; a chat template in one line."""

    chat_template = "yes"

    def decode(
        self,
        token_ids: list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """Bytes to text, as byte-level tokenizers do it."""
        data = b""
        for token in token_ids:
            if token < 256:
                data += bytes([token])
            elif not skip_special_tokens:
                data += b"<end>"
        return data.decode("utf-8", errors="replace")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Bytes, behind a start token if asked for."""
        return [256] * add_special_tokens + list(text.encode())

    def apply_chat_template(self, messages, tokenize, add_generation_prompt) -> str:
        """role:content| for every message, then the assistant's."""
        assert not tokenize
        text = "".join(f"{message['role']}:{message['content']}|" for message in messages)
        return text + "assistant:" * add_generation_prompt


def pieces(tokenizer, ids: list[int], sizes) -> list[str]:
    """The stream of a row that gets these ids in blocks."""
    text, out, start = Detokenizer(tokenizer), [], 0
    while start < len(ids):
        size = sizes()
        out.append(text.push(ids[start : start + size]))
        start += size
    return [*out, text.finish()]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_stream_holds_no_half_character_and_is_the_whole_text(size):
    ids = list(TURKISH.encode())
    stream = pieces(ByteTokenizer(), ids, lambda: size)
    assert "".join(stream) == TURKISH
    assert not any("�" in piece for piece in stream)


def test_a_broken_end_is_only_shown_at_the_end():
    ids = list("aç".encode())[:-1]
    assert pieces(ByteTokenizer(), ids, lambda: 1) == ["a", "", "�"]


def test_bytes_that_never_become_a_character_still_come_out_once():
    ids = [65, 0xC4, 0xC4, 66, 0xE2, 0x82, 67, 0xFF, 0xFF]
    stream = pieces(ByteTokenizer(), ids, lambda: 1)
    assert "".join(stream) == ByteTokenizer().decode(ids)


def test_special_tokens_are_left_out_unless_asked_for():
    assert pieces(ByteTokenizer(), [65, 256, 66], lambda: 1) == ["A", "", "B", ""]
    shown = Detokenizer(ByteTokenizer(), special=True)
    assert shown.push([65, 256]) == "A<end>"


def encoded(text: str) -> list[int]:
    """Ids of a text."""
    return list(text.encode())


def test_case_26_a_stop_string_early_in_a_block_cuts_behind_its_last_piece():
    stop = StopStrings(ByteTokenizer(), ["END"])
    ids = encoded("aENDbcdefg")
    assert stop(ids, len(ids)) == 4


def test_case_26_a_stop_string_may_span_steps():
    stop = StopStrings(ByteTokenizer(), ["END"])
    ids = encoded("some text EN")
    assert stop(ids, 3) is None
    assert stop([*ids, *encoded("Dab")], 3) == len(ids) + 1


def test_case_26_the_border_to_the_prompt_is_no_part_of_it():
    assert StopStrings(ByteTokenizer(), ["END"])(encoded("D and on"), 8) is None


def test_the_earliest_of_several_stop_strings_wins():
    stop = StopStrings(ByteTokenizer(), ["fg", "bc", "cde"])
    assert stop(encoded("abcdefg"), 7) == 3


def test_a_stop_string_of_letters_split_over_tokens():
    stop = StopStrings(ByteTokenizer(), ["ğş"])
    ids = encoded("çağşa")
    for end in range(1, len(ids)):
        expected = len(encoded("çağş")) if end >= len(encoded("çağş")) else None
        assert stop(ids[:end], 1) == (expected if end == len(encoded("çağş")) else None)


def test_no_stop_string_never_stops():
    assert StopStrings(ByteTokenizer(), [])(encoded("abc"), 3) is None


@pytest.mark.parametrize("strings", [[""], ["a", ""], "END"])
def test_stop_strings_must_be_a_list_of_text(strings):
    with pytest.raises(ValueError, match="list of non-empty strings"):
        StopStrings(ByteTokenizer(), strings)


def test_stopping_equals_a_search_of_the_whole_text():
    chooser = random.Random(0)
    for _ in range(200):
        ids = [chooser.choice(b"ab") for _ in range(20)]
        strings = ["".join(chooser.choices("ab", k=chooser.randint(3, 6))) for _ in range(2)]
        stop, length, found = StopStrings(ByteTokenizer(), strings), 0, None
        while length < len(ids) and found is None:
            new = min(chooser.randint(1, 5), len(ids) - length)
            length += new
            found = stop(ids[:length], new)
        text = bytes(ids).decode()
        ends = [text.index(s) + len(s) for s in strings if s in text]
        assert found == (min(ends) if ends else None)


def test_18_the_template_is_applied_once_and_the_answer_may_be_begun():
    tokenizer = ByteTokenizer()
    assert chat_ids(tokenizer, "hi") == encoded("user:hi|assistant:")
    ids = chat_ids(tokenizer, "hi", prefix="Well", system="be brief")
    assert ids == encoded("system:be brief|user:hi|assistant:Well")


def test_a_model_without_a_chat_template_says_so():
    tokenizer = ByteTokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        chat_ids(tokenizer, "hi")


@pytest.fixture(scope="module")
def target(default_model) -> Target:
    return default_model


@pytest.mark.model
@pytest.mark.parametrize("seed", range(5))
def test_streaming_with_the_real_tokenizer(target, seed):
    chooser = random.Random(seed)
    ids = target.encode(TURKISH)
    assert len(ids) > len(TURKISH.split())
    stream = pieces(target.tokenizer, ids, lambda: chooser.randint(1, 6))
    assert "".join(stream) == target.decode(ids) == TURKISH
    assert not any("�" in piece for piece in stream)
    noise = [chooser.randrange(target.vocab_size) for _ in range(200)]
    whole = "".join(pieces(target.tokenizer, noise, lambda: chooser.randint(1, 6)))
    assert whole == target.decode(noise)


@pytest.mark.model
def test_stop_strings_with_the_real_tokenizer(target):
    ids = target.encode("Bir varmış, bir yokmuş. Evvel zaman içinde")
    kept = StopStrings(target.tokenizer, ["yokmuş"])(ids, len(ids))
    assert target.decode(ids[:kept]).endswith("yokmuş")
    assert "yokmuş" not in target.decode(ids[: kept - 1])


@pytest.mark.model
def test_the_real_chat_template(target):
    ids = target.encode_chat("Merhaba", prefix="Selam", system="Kısa yaz.")
    assert target.decode(ids, special=True) == (
        "<|im_start|>system\nKısa yaz.<|im_end|>\n<|im_start|>user\nMerhaba<|im_end|>\n"
        "<|im_start|>assistant\nSelam"
    )
    assert ids.count(target.tokenizer.convert_tokens_to_ids("<|im_start|>")) == 3
