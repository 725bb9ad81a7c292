"""Ours beside transformers: the same model, prompts and k, plain and copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure.timing import alternate, seconds_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_lab.decoding.target import Target

DOMAINS = ("chat", "code", "quotation")
Say = Callable[[str], None]


def measure_peers(
    target: Target,
    peer: PreTrainedModel,
    work: Mapping[str, list[list[int]]],
    say: Say,
    max_new_tokens: int = 64,
    k: int = 4,
    rounds: int = 5,
) -> dict[str, object]:
    """Tokens per second of ours and of transformers, plain and copying, on the same greedy work.

    ``work`` maps a domain to its prompts as token ids; ``say`` is told a line for each.
    """
    table = {}
    for domain, prompts in work.items():
        arms, texts = _arms(target, peer, prompts, max_new_tokens, k)
        alternate(arms, 1)  # warm up, and fill `texts`
        table[domain] = _speeds(alternate(arms, rounds), texts) | {"same_text": _same(texts)}
        say(_line(domain, table[domain]))
    return {"k": k, "max_new_tokens": max_new_tokens, "rounds": rounds, "domains": table}


def _arms(
    target: Target, peer: PreTrainedModel, rows: list[list[int]], budget: int, k: int
) -> tuple[dict[str, Callable[[], float]], dict[str, list[list[int]]]]:
    """The four ways to do the same work, and where each leaves its tokens."""
    texts: dict[str, list[list[int]]] = {}
    ngram = load_proposer("ngram")

    def ours(name: str, proposer: object) -> float:
        texts[name] = []
        return seconds_of(
            lambda: [
                texts[name].extend(
                    generate(target, [ids], proposer, k=k, max_new_tokens=budget).tokens
                )
                for ids in rows
            ]
        )

    def theirs(name: str, **options: int) -> float:
        texts[name] = []
        return seconds_of(
            lambda: [texts[name].append(_peer_generate(peer, ids, budget, options)) for ids in rows]
        )

    return {
        "transformers": lambda: theirs("transformers"),
        "ours": lambda: ours("ours", None),
        "transformers_lookup": lambda: theirs("transformers_lookup", prompt_lookup_num_tokens=k),
        "ours_ngram": lambda: ours("ours_ngram", ngram),
    }, texts


def _peer_generate(
    peer: PreTrainedModel, ids: list[int], budget: int, options: dict[str, int]
) -> list[int]:
    prompt = torch.tensor([ids])
    with torch.inference_mode():
        whole = peer.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=budget,
            do_sample=False,
            **options,
        )
    return whole[0, len(ids) :].tolist()


def _speeds(seconds: Mapping[str, list[float]], texts: Mapping[str, list]) -> dict[str, object]:
    """Tokens per second by arm (median, and all rounds), and the ratios of interest."""
    speeds = {
        arm: [sum(map(len, texts[arm])) / value for value in values]
        for arm, values in seconds.items()
    }
    pairs = {
        "plain_over_transformers": ("ours", "transformers"),
        "ngram_over_lookup": ("ours_ngram", "transformers_lookup"),
        "ngram_over_own_plain": ("ours_ngram", "ours"),
        "lookup_over_own_plain": ("transformers_lookup", "transformers"),
    }
    ratios = {}
    for name, (one, other) in pairs.items():
        by_round = [a / b for a, b in zip(speeds[one], speeds[other], strict=True)]
        ratios[name] = {"median": median(by_round), "low": min(by_round), "high": max(by_round)}
    return {
        "tokens_per_second": {arm: median(values) for arm, values in speeds.items()},
        "rounds": speeds,
        "ratios": ratios,
    }


def _same(texts: Mapping[str, list[list[int]]]) -> dict[str, int]:
    """How many prompts each arm answered with exactly the tokens of transformers' plain greedy."""
    right = texts["transformers"]
    return {
        arm: sum(a == b for a, b in zip(answers, right, strict=True))
        for arm, answers in texts.items()
    }


def _line(domain: str, result: Mapping[str, Mapping]) -> str:
    speeds = ", ".join(f"{arm} {v:.1f}" for arm, v in result["tokens_per_second"].items())
    ratios = ", ".join(f"{name} {v['median']:.2f}" for name, v in result["ratios"].items())
    return f"{domain}: tokens/s {speeds}; {ratios}; same text {result['same_text']}"


def load_peer(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights as a transformers model, as shipped."""
    from transformers import AutoModelForCausalLM

    from specdec_lab.decoding.checkpoint import fetch

    return AutoModelForCausalLM.from_pretrained(fetch(), dtype=dtype).eval()
