"""Ours beside transformers: the same model, prompts and k, greedy; plain, copying, and with a draft
model that both load.

The recording maps each domain to what `race.domain_summary` says, over these arms:

* ``transformers``, ``ours``: plain decoding;
* ``transformers_lookup``, ``ours_ngram``: k tokens copied from the prompt and the text;
* ``transformers_assisted_k``, ``ours_draft``: the draft model with fixed k, no early end;
* ``transformers_assisted``: as shipped, up to 20 tokens while the draft is sure enough.

The draft is the folder that ``SPECDEC_LAB_DRAFT`` names, any Llama-shaped checkpoint with the
target's tokenizer; by default the target's first layers (see `early_exit`): a weak draft, so those
arms compare engines, not what a draft can bring.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdec_lab.decoding.checkpoint import fetch
from specdec_lab.decoding.decode import generate
from specdec_lab.proposers import load_proposer
from specdec_lab.study.measure import race
from specdec_lab.study.measure.early_exit import early_exit_draft
from specdec_lab.study.measure.race import Arm, Heat, timed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_lab.decoding.target import Target

DOMAINS = ("chat", "code", "quotation")
PAIRS = {
    "plain_over_transformers": ("ours", "transformers"),
    "ngram_over_lookup": ("ours_ngram", "transformers_lookup"),
    "ngram_over_own_plain": ("ours_ngram", "ours"),
    "lookup_over_own_plain": ("transformers_lookup", "transformers"),
    "draft_over_assisted_k": ("ours_draft", "transformers_assisted_k"),
    "draft_over_assisted": ("ours_draft", "transformers_assisted"),
    "draft_over_own_plain": ("ours_draft", "ours"),
    "assisted_k_over_own_plain": ("transformers_assisted_k", "transformers"),
    "assisted_over_own_plain": ("transformers_assisted", "transformers"),
}


def settings(quick: bool) -> dict[str, object]:
    """How much is measured, in full or for a rough answer."""
    much = {"prompts": 3, "max_new_tokens": 32, "rounds": 3}
    little = {"prompts": 1, "max_new_tokens": 16, "rounds": 3}
    how = little if quick else much
    return {"domains": list(DOMAINS), "k": 4, "draft": draft_folder().name, **how}


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """One cell a round and domain, all arms in it."""
    draft, k = draft_folder(), settings["k"]
    arms = our_arms(target, draft, k) | transformers_arms(load_peer(fetch()), load_peer(draft), k)
    return race.cells(arms, target, settings)


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: how it was measured, and the results by domain."""
    how = {name: settings[name] for name in ("k", "draft", "max_new_tokens", "rounds")}
    adapts = find_spec("sklearn") is not None  # without it transformers keeps its first threshold
    domains = race.summary(settings, results, PAIRS, right="transformers")
    return how | {"assisted_threshold_adapts": adapts, "domains": domains}


def table(data: Mapping) -> str:
    """Speeds, ratios with their spread, and whether all texts were the same."""
    return race.table(data["domains"])


def draft_folder() -> Path:
    """The checkpoint that drafts on both sides."""
    own = os.environ.get("SPECDEC_LAB_DRAFT")
    return Path(own).expanduser() if own else early_exit_draft(fetch())


def our_arms(target: Target, draft: Path, k: int) -> dict[str, Arm]:
    """Plain decoding, n-gram and the draft model, in our loop."""
    return {
        "ours": our_arm(target, lambda: None, k),
        "ours_ngram": our_arm(target, lambda: load_proposer("ngram"), k),
        "ours_draft": _draft_arm(target, draft, k),
    }


def our_arm(target: Target, make_proposer: Callable[[], object], k: int) -> Arm:
    """Prompt after prompt in our loop, with a proposer that is new in every round."""

    def arm(prompts: list[list[int]], budget: int) -> Heat:
        proposer = make_proposer()

        def work() -> tuple[list[list[int]], int]:
            runs = [generate(target, [p], proposer, k=k, max_new_tokens=budget) for p in prompts]
            return [run.tokens[0] for run in runs], sum(run.trace.num_forwards for run in runs)

        return timed(work)

    return arm


def _draft_arm(target: Target, draft: Path, k: int) -> Arm:
    proposer = load_proposer({"method": "draft_model", "model": draft}, target)
    return our_arm(target, lambda: proposer, k)  # it keeps nothing from request to request


def transformers_arms(peer: PreTrainedModel, draft: PreTrainedModel, k: int) -> dict[str, Arm]:
    """Plain, prompt lookup, and assisted generation at fixed k and as shipped."""
    shipped = copy.deepcopy(draft.generation_config)
    fixed = copy.deepcopy(shipped)
    fixed.num_assistant_tokens = k
    fixed.num_assistant_tokens_schedule = "constant"
    fixed.assistant_confidence_threshold = 0.0

    def assisted(config: object) -> Arm:
        def arm(prompts: list[list[int]], budget: int) -> Heat:
            draft.generation_config = copy.deepcopy(config)  # what it learns stays in there
            return plain(prompts, budget, assistant_model=draft)

        return arm

    def plain(prompts: list[list[int]], budget: int, **options: object) -> Heat:
        with counted(peer) as forwards:
            return timed(
                lambda: ([_generate(peer, p, budget, options) for p in prompts], len(forwards))
            )

    return {
        "transformers": plain,
        "transformers_lookup": lambda p, n: plain(p, n, prompt_lookup_num_tokens=k),
        "transformers_assisted_k": assisted(fixed),
        "transformers_assisted": assisted(shipped),
    }


@contextmanager
def counted(model: torch.nn.Module) -> Iterator[list[None]]:
    """A list that grows by one with every forward pass of the model."""
    passes: list[None] = []
    hook = model.register_forward_hook(lambda *_: passes.append(None))
    try:
        yield passes
    finally:
        hook.remove()


def _generate(
    peer: PreTrainedModel, ids: list[int], budget: int, options: Mapping[str, object]
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


def load_peer(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A checkpoint as a transformers model, as shipped."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
