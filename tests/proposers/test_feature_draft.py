"""The loop of all heads on features: true pairs where the target has been, own ones beyond.

pytest tests/proposers/test_feature_draft.py
"""

import pytest
import torch

from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context, Draft, Verdict
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.transformer import chain_layout
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle1Head, Eagle3Head
from specdec_lab.proposers.feature_draft import FeatureDraft
from specdec_lab.proposers.mtp import MTPHead
from specdec_lab.proposers.tree_expansion import TreeShape
from specdec_lab.proposers.weights import describe_target, save_weights, trained_state
from specdec_lab.study.overlap import logits_behind
from toys import random_target, sequence_law, total_variation, whole_law

GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
PENALISED = Sampling(
    temperature=1.1, presence_penalty=0.7, repetition_penalty=1.4, bias={1: 0.5, 2: 1.0}
)
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))
HEADS = [Eagle1Head, Eagle3Head, MTPHead]
TREE = TreeShape(3, 3, (3, 2, 1))


def head_for(head_class, target, kept=KEPT, seed=0):
    """A head with random weights large enough to disagree with the target and with itself."""
    vocab = DraftVocab(kept, target.vocab_size)
    head = head_class.for_target(target, vocab)
    generator = torch.Generator().manual_seed(seed)
    head.initialise(target, generator)
    for value in trained_state(head).values():
        value.add_(torch.randn(value.shape, generator=generator).to(value) * 0.3)
    head.state_spread.abs_().add_(0.5)
    return head.requires_grad_(False), vocab


def drafter_for(head_class, target, **options) -> FeatureDraft:
    made = {name: options.pop(name) for name in ("kept", "seed") if name in options}
    head, vocab = head_for(head_class, target, **made)
    return FeatureDraft(target, head_class, head, vocab, **options)


@pytest.fixture
def target():
    return random_target(max_context=256)


def new_loop(target, drafter, k, rule="auto", sampling=GREEDY, prompts=PROMPTS) -> Loop:
    asked = Request.checked(target, prompts, drafter, k, sampling, rule, 60, None)
    return Loop(target, asked, CounterRandomness([0] * len(prompts), target.device))


def one_step(loop: Loop) -> Draft:
    admitted = loop.propose()
    loop.advance(admitted, loop.score(admitted.draft))
    loop.cache.settle(int(loop.context.lengths.max()))
    return admitted.draft


def accept(*counts: int):
    """A rule that accepts so many tokens of every row, down its first path, and then says 6."""

    def rule(context, draft, scores, sampling, randomness):
        accepted = torch.tensor(counts)
        path = torch.arange(draft.tokens.shape[1]).expand_as(draft.tokens)
        return Verdict(path, accepted, torch.full_like(accepted, 6))

    return rule


def rows_of(context: Context) -> list[list[int]]:
    pairs = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
    return [tokens[:length] for tokens, length in pairs]


@torch.no_grad()
def logits_by_hand(drafter, target, text, drafted) -> torch.Tensor:
    """The head's logits behind a text and behind each drafted token but the last, (k, Vd).

    Everything is read anew for every token, without a cache: true features for the text, the
    head's own for what was drafted. A text of one token has the mean feature in front of it.
    """
    head, tokens = drafter.head, torch.tensor([[*text, *drafted]])
    if len(text) == 1:
        features = torch.zeros(1, 1, target.hidden_size, dtype=target.dtype)
        tokens = torch.cat((tokens[:, :1], tokens), dim=1)
    else:
        _, hidden = target.model(tokens[:, : len(text) - 1], None, head.hidden_layers)
        features = head.features(hidden)  # (1, n, H)
    behind = []
    for _ in drafted:
        layout = chain_layout(head.arch, features)
        made, states = head.read(features, tokens[:, 1 : 1 + features.shape[1]], layout)
        behind.append(head.logits(states)[0, -1])
        features = torch.cat((features, made[:, -1:]), dim=1)
    return torch.stack(behind)


# --- What is drafted ------------------------------------------------------------------------------


@pytest.mark.parametrize("head_class", HEADS)
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_chain_is_what_a_reader_of_the_whole_text_drafts(target, head_class, sampling):
    """Different rows after full, partial and no acceptance; one of them a single token at first."""
    drafter = drafter_for(head_class, target)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0), sampling)
    for _ in range(4):
        rows, draft = rows_of(loop.context), one_step(loop)
        for b, (row, drafted) in enumerate(zip(rows, draft.tokens.tolist(), strict=True)):
            logits = logits_by_hand(drafter, target, row, drafted)
            if sampling.is_greedy:
                assert drafted == drafter.vocab.to_target(logits.argmax(-1)).tolist()
            else:
                laws = drafter.vocab.sampling(sampling).probs(logits, None)
                torch.testing.assert_close(draft.probs[b], laws, atol=1e-9, rtol=0)
