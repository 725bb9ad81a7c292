"""What a proposer is: anything with a `propose`; this class only spells out the optional parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.randomness import Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling


class Proposer:
    """The defaults of every optional part. A plug-in may inherit from it, but need not.

    ``hidden_layers`` are the target layers whose states `observe` wants, ``default_k`` the number
    of drafted tokens when the caller names none, ``max_k`` the most it can draft (None: no limit).
    ``card`` says what it takes to have it, as `weights.card_of` does; {} if it takes nothing.
    Neither `propose` nor `observe` may read a tensor on the host or loop over rows, as an
    accelerator would wait for it. On a CPU it costs nothing, so a proposer may have a second form
    there that does, tested against the first.
    """

    hidden_layers: tuple[int, ...] = ()
    default_k: int = 4
    max_k: int | None = None
    card: Mapping[str, float | None] = MappingProxyType({})

    def start(self, batch_size: int, max_length: int) -> None:
        """Forgets the last run; rows will hold at most ``max_length`` tokens."""

    def share(self, cache: KVCache) -> None:
        """Told the target's own cache of this run, behind `start` and before anything is read.

        A drafter made of the target's layers may start from it instead of reading the text again:
        what it writes behind the committed entries, the target writes over.
        """

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """Up to ``k`` tokens a row that may follow ``context``, as a Draft of tokens (B, k)."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a method propose(context, k, sampling, randomness) "
            "that returns a Draft"
        )

    def observe(self, tokens: Tensor, counts: Tensor, hidden: dict[int, Tensor]) -> None:
        """Told after prefill and each step: ``counts`` (B,) of ``tokens`` (B, M) were kept.

        ``hidden`` maps each of `hidden_layers` to the target's true states, (B, M, H).
        """
