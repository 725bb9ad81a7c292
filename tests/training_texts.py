"""Texts of a tiny model, as training reads them."""

from dataclasses import dataclass

import torch

from specdec_lab.decoding.decode import generate


@dataclass(frozen=True)
class Written:
    """A prompt and what the target wrote behind it."""

    prompt: list[int]
    answer: list[int]
    domain: str = "chat"


def written_by(target, number=6, budget=14) -> list[Written]:
    """Greedy continuations of ``number`` random prompts; prompts and answers of unequal length."""
    torch.manual_seed(1)
    prompts = [torch.randint(0, 31, (3 + i % 3,)).tolist() for i in range(number)]
    answers = generate(target, prompts, max_new_tokens=budget).tokens
    return [Written(p, a[: 8 + i]) for i, (p, a) in enumerate(zip(prompts, answers, strict=True))]


def quiet(line: str) -> None:
    """A report that nobody reads."""
