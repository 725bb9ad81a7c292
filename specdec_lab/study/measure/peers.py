"""Ours beside transformers: the same model, prompts and k, plain and copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure.progress import table as as_table
from specdec_lab.study.measure.timing import alternate, seconds_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_lab.decoding.target import Target

DOMAINS = ("chat", "code", "quotation")


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    much = {"prompts": 3, "max_new_tokens": 64, "rounds": 5}
    little = {"prompts": 1, "max_new_tokens": 32, "rounds": 2}
    return {"domains": list(DOMAINS), "k": 4, **(little if quick else much)}


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """One cell a domain."""
    peer = load_peer()

    def cell(domain: str) -> dict:
        work = [prompt.ids(target) for prompt in load_prompts(domain)[: settings["prompts"]]]
        how = (settings["max_new_tokens"], settings["k"], settings["rounds"])
        return measure_domain(target, peer, work, *how)

    return {domain: (lambda domain=domain: cell(domain)) for domain in settings["domains"]}


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: how it was measured, and the results by domain."""
    how = {name: settings[name] for name in ("k", "max_new_tokens", "rounds")}
    return how | {"domains": dict(results)}


def table(data: Mapping) -> str:
    """The ratios of every domain, with the lowest and the highest round."""
    rows = [
        [domain, name, ratio["median"], ratio["low"], ratio["high"]]
        for domain, result in data["domains"].items()
        for name, ratio in result["ratios"].items()
    ]
    return as_table(("domain", "ratio", "median", "low", "high"), rows)


def measure_domain(
    target: Target,
    peer: PreTrainedModel,
    prompts: list[list[int]],
    max_new_tokens: int = 64,
    k: int = 4,
    rounds: int = 5,
) -> dict[str, object]:
    """Tokens per second of ours and of transformers, plain and copying, on the same greedy work:
    prompts as token ids.
    """
    arms, texts = _arms(target, peer, prompts, max_new_tokens, k)
    alternate(arms, 1)  # warm up, and fill `texts`
    return _speeds(alternate(arms, rounds), texts) | {"same_text": _same(texts)}


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


def load_peer(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights as a transformers model, as shipped."""
    from transformers import AutoModelForCausalLM

    from specdec_lab.decoding.checkpoint import fetch

    return AutoModelForCausalLM.from_pretrained(fetch(), dtype=dtype).eval()
