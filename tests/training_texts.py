"""Texts of a tiny model, as training reads them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """A prompt and what the target wrote behind it."""

    prompt: list[int]
    answer: list[int]
    domain: str = "chat"
