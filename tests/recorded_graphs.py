"""A stand-in for CUDA graphs where there is no GPU: it records the kernels of a capture and runs
them again, on the same tensors and without their Python, as a graph does.
"""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hand_loop import accept, new_loop, one_step
from specdec_lab.decoding import graphs
from toys import random_target


class RecordedGraph(TorchDispatchMode):
    """A `torch.cuda.CUDAGraph` of the CPU: its kernels are the operations of the capture."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Run every operation again; what it made lies where it lay."""
        for operation, args, kwargs, result in self.calls:
            again = operation(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class FakeStream:
    """A stream on which nothing has to be waited for."""

    def __init__(self, device=None) -> None: ...

    def wait_stream(self, other) -> None: ...


@contextmanager
def recording(graph, stream):
    """What `torch.cuda.graph` does to the code inside."""
    with graph:
        yield


def record_captures(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """Has captures work on the CPU; the list will say of which shapes they were."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RecordedGraph)
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "current_stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", recording)
    shapes = []

    def always(fn, buffers):
        shapes.append([tuple(buffer.shape) for buffer in buffers])
        return graphs._Replay(fn, buffers)

    monkeypatch.setattr(graphs, "capture", always)
    return shapes


def check_drafts_from_graphs(captures, make, sampling, k=3) -> None:
    """What ``make(target)`` drafts in replayed steps is what it drafts in plain ones, and a second
    request needs no further graph.
    """
    targets = [random_target(max_context=256, graphs=graphs) for graphs in (False, True)]
    drafters = [make(target) for target in targets]
    counts = []
    for _ in range(3):  # two storages take turns: the loop of the last request still holds one
        loops = [
            new_loop(target, drafter, k, accept(2, 1, 0), sampling)
            for target, drafter in zip(targets, drafters, strict=True)
        ]
        for _ in range(4):
            expected, got = map(one_step, loops)
            assert torch.equal(got.tokens, expected.tokens)
            if expected.probs is not None:
                torch.testing.assert_close(got.probs, expected.probs, atol=1e-9, rtol=0)
        counts.append(len(captures))
    assert counts[0] > 0
    assert counts[1] == counts[2]
