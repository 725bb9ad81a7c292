"""CUDA graphs: a step that was recorded once is launched as a whole, without Python between its
kernels.

A graph replays the same kernels on the same addresses. So whatever changes from step to step must
be a tensor that is copied into a fixed buffer (tokens, lengths, who sees whom), and whatever is a
number on the host (how many nodes, how many keys are read) makes a graph of its own. See "CUDA
Graphs" in PyTorch's notes on CUDA semantics. A drafter's step is captured where its target's is: a
chain is replayed token by token, as each is chosen under the request's sampling before the next.

Not measured: no GPU was at hand when this was written. The tests marked ``gpu`` compare captured
and plain steps; on the CPU the same steps are traced, and replayed without their Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specdec_lab.decoding.cache import KVCache

Step = Callable[..., tuple[Tensor, ...]]
WARM_UPS = 3  # runs before a capture: libraries choose their kernels and allocate in the first ones


def capture(fn: Step, buffers: Sequence[Tensor]) -> Step:
    """``fn`` as one CUDA graph for inputs shaped like ``buffers``; on other devices ``fn`` itself.

    ``fn`` takes tensors and returns a tuple of tensors. It is run a few times here, so running it
    again with the same inputs must change nothing; what it writes elsewhere (a cache) must stay at
    its address. It must not read the device, nor depend on anything else that changes.
    """
    if buffers[0].device.type != "cuda":
        return fn
    return _Replay(fn, buffers)


class _Replay:
    """A captured function: copies its inputs in, replays, and returns copies of the outputs, which
    the next replay therefore leaves alone.
    """

    def __init__(self, fn: Step, buffers: Sequence[Tensor]) -> None:
        stream = torch.cuda.Stream(buffers[0].device)  # libraries keep their workspaces per stream
        self._graph = torch.cuda.CUDAGraph()
        # Inference tensors could not be written to by a later capture in ordinary mode.
        with torch.inference_mode(False), torch.no_grad():
            self._inputs = [buffer.clone() for buffer in buffers]
            stream.wait_stream(torch.cuda.current_stream(buffers[0].device))
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    fn(*self._inputs)
            torch.cuda.current_stream(buffers[0].device).wait_stream(stream)
            with torch.cuda.graph(self._graph, stream=stream):
                self._outputs = fn(*self._inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)


class Captures:
    """Functions of tensors, each captured once for every shape of its inputs."""

    def __init__(self) -> None:
        self._steps: dict[Hashable, Step] = {}

    def run(self, name: Hashable, fn: Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What ``fn`` makes of ``inputs``; ``name`` says all that it depends on besides."""
        key = (name, *(tuple(tensor.shape) for tensor in inputs))
        if key not in self._steps:
            self._steps[key] = capture(fn, inputs)
        return self._steps[key](*inputs)


class Model(Protocol):
    """Anything that reads nodes behind a cache which it makes itself."""

    def new_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache for ``batch_size`` rows of up to ``max_length`` tokens."""


class Steps:
    """The steps of a model on its cache, run as they stand."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def new_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache for ``batch_size`` rows of up to ``max_length`` tokens."""
        return self._model.new_cache(batch_size, max_length)

    def new_draft_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache to draft on, read as cheaply as can be."""
        return self.new_cache(batch_size, max_length).for_drafts()

    def shared(self, cache: KVCache) -> KVCache:
        """A second cache to draft on, on the entries of one that `new_cache` gave."""
        return cache.shared().for_drafts()

    def run(
        self, step: Step, cache: KVCache, num_nodes: int, *inputs: Tensor, **settings: Hashable
    ) -> tuple[Tensor, ...]:
        """``step(cache, *inputs, **settings)``, behind which ``num_nodes`` nodes lie written and
        not kept. It must depend on nothing else that changes.
        """
        return step(cache, *inputs, **settings)


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The storage of a cache, and the graphs that were captured on it."""

    storage: KVCache
    graphs: Captures = field(default_factory=Captures)

    def fits(self, batch_size: int, max_length: int) -> bool:
        """Whether a request of this size can use the storage."""
        return self.storage.batch_size == batch_size and self.storage.capacity >= max_length


class StepGraphs(Steps):
    """The steps of a model as graphs: one per cache storage, step, shapes and number of keys read,
    captured when first needed.

    A graph is tied to the storage it writes to. So a cache that nobody holds any more gives its
    storage, with its graphs, to the next request of that size; storage of other sizes is let go.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._shelves: list[_Shelf] = []
        self._lent: WeakKeyDictionary[KVCache, _Shelf] = WeakKeyDictionary()

    def new_cache(self, batch_size: int, max_length: int) -> KVCache:
        """The same, on storage that an earlier request may have left."""
        used = {id(shelf) for shelf in self._lent.values()}
        idle = [shelf for shelf in self._shelves if id(shelf) not in used]
        shelf = next((shelf for shelf in idle if shelf.fits(batch_size, max_length)), None)
        if shelf is None:
            with torch.inference_mode(False):  # so that it can be written to in either mode
                shelf = _Shelf(super().new_cache(batch_size, max_length))
            self._shelves = [s for s in self._shelves if id(s) in used] + [shelf]
        cache = copy.copy(shelf.storage)
        cache.lengths = torch.zeros_like(cache.lengths)
        cache.entries.zero_()
        self._lent[cache] = shelf
        return cache

    def new_draft_cache(self, batch_size: int, max_length: int) -> KVCache:
        """An empty cache in whole blocks of keys: each number of them needs a graph of its own."""
        return self.new_cache(batch_size, max_length)

    def shared(self, cache: KVCache) -> KVCache:
        """A second cache to draft on, with the graphs of the first."""
        second = cache.shared()
        self._lent[second] = self._lent[cache]
        return second

    def run(
        self, step: Step, cache: KVCache, num_nodes: int, *inputs: Tensor, **settings: Hashable
    ) -> tuple[Tensor, ...]:
        """The same on a cache that `new_cache` gave, without Python but for the first time."""
        behind = copy.copy(cache)  # the cache itself must not be kept alive

        def on_cache(lengths: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
            behind.lengths = lengths
            return step(behind, *inputs, **settings)

        name = (step, cache.num_keys(num_nodes), *sorted(settings.items()))
        found = self._lent[cache].graphs.run(name, on_cache, cache.lengths, *inputs)
        cache.num_written = num_nodes  # a replay runs no Python
        return found
