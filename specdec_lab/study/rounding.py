"""A draft model for nothing: the target's own weights, rounded to few bits.

Only the *law* of the rounded model is made here, for any number of bits: float32 products of
rounded weights, no faster than the target. The fast products of 4 and 8 bits are in
``decoding.low_bit``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specdec_lab.decoding.linear import PackedLinear
from specdec_lab.decoding.low_bit import round_to_levels, with_products
from specdec_lab.decoding.randomness import Lane, Randomness
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target


def round_to_nearest(weight: Tensor, bits: int = 4, group: int = 32) -> Tensor:
    """``weight`` (out, in) with each group of neighbours along a row on its own ``2**bits`` levels.

    The levels lie evenly between the smallest and the largest weight of the group (asymmetric), so
    both ends stay exact. Raises ValueError unless ``group`` divides the row.
    """
    levels, low, step = round_to_levels(weight, bits, group)
    return (low + levels * step).flatten(1)


def rounded_copy(
    target: Target, bits: int = 4, group: int = 32, head: nn.Module | None = None
) -> Target:
    """A second target whose matrix products use rounded weights.

    ``head``, (..., H) to (..., V), is taken as it is, so that copies differ in their layers alone;
    by default the head is rounded as the layers are. Norms, biases and the table that looks tokens
    up stay as they are, and are shared with ``target``, as is its tokenizer.
    """

    def make(product: PackedLinear) -> nn.Module:
        keeps = head is not None and product is target.model.head
        return head if keeps else _rounded(product, bits, group)

    rounded = with_products(target.model, make)
    return target.with_model(rounded, f"weights rounded to {bits} bits")


def _rounded(product: PackedLinear, bits: int, group: int) -> nn.Linear:
    plain = nn.Linear(product.in_features, product.out_features, device="meta")
    weight = round_to_nearest(product.unpacked(), bits, group)
    plain.weight = nn.Parameter(weight, requires_grad=False)
    bias = product.bias
    plain.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    return plain


class RereadingDraft:
    """Drafts by sampling from another target, which rereads the whole text at every step.

    The simplest draft model there is: no cache to roll back, hence nothing to get wrong, and slow.
    Both models need the same vocabulary.
    """

    def __init__(self, model: Target) -> None:
        self.model = model

    def propose(
        self, context: Context, k: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """``k`` tokens (B, k) and the laws they were drawn from, (B, k, V)."""
        num_rows, width = context.tokens.shape
        cache = self.model.start(num_rows, width + k)
        self.model.prefill(cache, context.tokens[:, : width - 1], context.lengths - 1)
        newest, tokens, laws = context.pending, [], []
        for place in range(k):
            logits = self.model.score(cache, newest, Draft.empty(num_rows, newest.device)).logits
            self.model.keep(cache, None, torch.ones_like(newest))
            laws.append(sampling.probs(logits[:, 0]))  # (B, V)
            newest = randomness.draw(laws[-1], context.lengths, Lane.DRAFT, place)
            tokens.append(newest)
        count = torch.full_like(context.lengths, k)
        return Draft(torch.stack(tokens, 1), count, probs=torch.stack(laws, 1))
