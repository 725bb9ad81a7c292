"""Between text and ids: the chat template, streaming without half characters, stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Tokenizer(Protocol):
    """What this module needs of a tokenizer (transformers' have more)."""

    def decode(self, token_ids: list[int], **options: bool) -> str:
        """Text of ids."""
        ...


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, text: str, prefix: str = "", system: str | None = None
) -> list[int]:
    """Ids of ``text`` as a user's message; the chat template is applied once, and nothing else adds
    a special token.

    ``prefix`` is the beginning of the answer, put into the model's mouth; ``system`` replaces the
    template's own system message. Raises ``ValueError`` when the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise ValueError("This model has no chat template: encode plain text instead.")
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(prompt + prefix, add_special_tokens=False)


def _text(tokenizer: Tokenizer, ids: Sequence[int], special: bool) -> str:
    return tokenizer.decode(
        list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
    )


class Detokenizer:
    """Turns ids into text as they come, one row; never emits a part of a character.

    Byte-level tokenizers may split a letter over tokens: such text is held back until it is whole.
    All pieces together, with that of ``finish``, are the decoded text of all ids.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None:
        self.tokenizer = tokenizer
        self.special = special
        self.ids: list[int] = []
        self.context = 0  # ids from here on are decoded, so that spacing at the border is right
        self.emitted = 0  # ids before this are emitted

    def push(self, ids: Sequence[int]) -> str:
        """The text that is complete with these ids; may be empty."""
        self.ids += ids
        piece = self._held_text()
        if piece.endswith(HALF_CHARACTER):
            return ""
        if piece:
            self.context, self.emitted = self.emitted, len(self.ids)
        return piece

    def finish(self) -> str:
        """Whatever is still held back, complete or not."""
        piece = self._held_text()
        self.context, self.emitted = self.emitted, len(self.ids)
        return piece

    def _held_text(self) -> str:
        before = _text(self.tokenizer, self.ids[self.context : self.emitted], self.special)
        return _text(self.tokenizer, self.ids[self.context :], self.special)[len(before) :]


class StopStrings:
    """A ``stop(ids, new)`` for ``generate`` that ends a row at the earliest of some strings.

    ``ids`` are all generated ids of the row and ``new`` of them came in the last step. The result
    is how many ids to keep, cut behind the token that completes the stop string, or None. A string
    may span steps; it can't begin in the prompt.
    """

    def __init__(self, tokenizer: Tokenizer, strings: Sequence[str]) -> None:
        if isinstance(strings, str) or not all(strings):
            raise ValueError("Stop strings must be a list of non-empty strings.")
        self.tokenizer = tokenizer
        self.strings = tuple(strings)
        # A token is at least one byte; a few more ids keep the spacing at the window's border
        # right.
        self.reach = max((len(s.encode()) for s in self.strings), default=0) + 4

    def __call__(self, ids: Sequence[int], new: int) -> int | None:
        """How many ids to keep, or None to go on."""
        start = max(0, len(ids) - new - self.reach)
        for kept in range(len(ids) - new + 1, len(ids) + 1):
            text = _text(self.tokenizer, ids[start:kept], special=True)
            if any(string in text for string in self.strings):
                return kept
        return None
