"""The loop of all heads on features: true pairs where the target has been, own ones beyond.

pytest tests/proposers/test_feature_draft.py
"""

import pytest
import torch

from hand_loop import accept, check_node, new_loop, one_step, path_of, rows_of
from recorded_graphs import check_drafts_from_graphs
from specdec_lab.decoding.admit import admit
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.decoding.transformer import chain_layout
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.eagle import Eagle1Head, Eagle3Head
from specdec_lab.proposers.feature_draft import FeatureDraft
from specdec_lab.proposers.mtp import MTPHead
from specdec_lab.proposers.tree_expansion import TreeShape
from specdec_lab.proposers.weights import trained_state
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
@pytest.mark.parametrize("sampling", [GREEDY, PENALISED], ids=["greedy", "penalised"])
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
                laws = laws_by_hand(drafter, sampling, row, drafted, len(PROMPTS[b]), logits)
                torch.testing.assert_close(draft.probs[b], laws, atol=1e-9, rtol=0)


def laws_by_hand(drafter, sampling, text, drafted, prompt_length, logits) -> torch.Tensor:
    """The request's laws (k, Vd) over the draft vocabulary of these logits."""
    lengths = torch.tensor([len(text)])
    context = Context(torch.tensor([text]), lengths, torch.tensor([prompt_length]))
    draft = Draft(torch.tensor([drafted[:-1]]), torch.tensor([len(drafted) - 1]))
    history = drafter.vocab.history(history_of(sampling, context, draft, drafter.vocab_size))
    return drafter.vocab.sampling(sampling).probs(logits[None], history)[0]


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_tree_is_what_a_reader_of_its_paths_drafts(target, drafting):
    """Along every path to a leaf, the head sees its own features of the nodes above."""
    drafter = drafter_for(Eagle3Head, target, drafting=drafting, shape=TREE)
    loop = new_loop(target, drafter, 9, accept(2, 1, 0), WARM)
    for _ in range(3):
        rows, draft = rows_of(loop.context), one_step(loop)
        for b, row in enumerate(rows):
            tokens, parents = draft.tokens[b].tolist(), draft.parents[b].tolist()
            for node in range(int(draft.count[b])):
                path = path_of(tokens, parents, node)
                logits = logits_by_hand(drafter, target, row, path)[-1]
                law = (logits / WARM.temperature).softmax(-1)
                check_node(draft, b, node, law, drafter.vocab)


def test_features_of_a_draft_are_never_taken_for_true_ones(target):
    """The check of whole texts must see a drafter that keeps what it made itself."""

    class Stale(FeatureDraft):
        def _forget(self, context):
            self._cache.roll_back(context.lengths - 2)
            self._cache.settle(int(self._cache.lengths.max()))

    head, vocab = head_for(Eagle1Head, target)
    drafter = Stale(target, Eagle1Head, head, vocab)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0), WARM)
    one_step(loop)
    rows, draft = rows_of(loop.context), one_step(loop)
    logits = logits_by_hand(drafter, target, rows[0], draft.tokens[0].tolist())
    assert not torch.allclose(draft.probs[0], (logits / WARM.temperature).softmax(-1), atol=1e-3)


def test_a_step_without_a_draft_leaves_a_gap_that_is_closed(target):
    drafter = drafter_for(Eagle1Head, target)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0))
    one_step(loop)
    for _ in range(2):
        none = admit_nothing(loop)
        loop.advance(none, loop.score(none.draft))
        loop.cache.settle(int(loop.context.lengths.max()))
    rows, draft = rows_of(loop.context), one_step(loop)
    for row, drafted in zip(rows, draft.tokens.tolist(), strict=True):
        logits = logits_by_hand(drafter, target, row, drafted)
        assert drafted == drafter.vocab.to_target(logits.argmax(-1)).tolist()


def admit_nothing(loop):
    """An empty draft, as the loop admits it."""
    room = torch.full((3,), 9)
    return admit(Draft.empty(3), 0, room, 32, loop._eos)


def test_a_long_prompt_is_read_in_blocks(target, monkeypatch):
    whole = drafter_for(MTPHead, target)
    prompts = [list(range(1, 12)), [5, 6, 7], [8, 9]]
    expected = one_step(new_loop(target, whole, 3, sampling=WARM, prompts=prompts))
    monkeypatch.setattr("specdec_lab.proposers.feature_draft.PREFILL_BLOCK", 4)
    got = one_step(new_loop(target, whole, 3, sampling=WARM, prompts=prompts))
    torch.testing.assert_close(got.probs, expected.probs, atol=1e-9, rtol=0)


def test_a_draft_ends_where_it_is_unsure(target):
    drafter = drafter_for(Eagle1Head, target, min_confidence=0.99)
    loop = new_loop(target, drafter, 3, sampling=Sampling(temperature=9.0))
    assert one_step(loop).tokens.shape == (3, 1)


@pytest.mark.parametrize(
    ("head_class", "drafting", "shape"),
    [
        (Eagle1Head, "greedy", TREE),
        (Eagle3Head, "probabilistic", TREE),
        (MTPHead, "probabilistic", None),
    ],
)
def test_a_whole_step_reads_nothing_on_the_host(head_class, drafting, shape):
    target = random_target(dtype=torch.float32, device="meta")
    head, vocab = head_for(head_class, target)
    drafter = FeatureDraft(target, head_class, head, vocab, drafting, shape=shape)
    sampling = Sampling(temperature=0.8, frequency_penalty=0.1, bias={2: 1.0})
    loop = new_loop(target, drafter, 3, sampling=sampling)
    for _ in range(2):
        admitted = loop.propose()
        assert loop.advance(admitted, loop.score(admitted.draft)).is_meta
        assert admitted.draft.tokens.shape == (3, 3)


@pytest.mark.parametrize("shape", [None, TREE], ids=["chain", "tree"])
def test_where_nothing_may_be_read_the_drafts_are_the_same(target, monkeypatch, shape):
    """The form for accelerators, on the CPU: as many pairs as a row may lack are read."""
    drafter = drafter_for(Eagle1Head, target, shape=shape)
    loops = [new_loop(target, drafter, 3, accept(2, 1, 0), WARM)]
    expected = [one_step(loops[0]) for _ in range(3)]
    monkeypatch.setattr("specdec_lab.proposers.feature_draft.may_read", lambda device: False)
    again = new_loop(target, drafter, 3, accept(2, 1, 0), WARM)
    for draft in expected:
        got = one_step(again)
        assert torch.equal(got.tokens, draft.tokens)
        torch.testing.assert_close(got.probs, draft.probs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("shape", [None, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_replayed_steps_draft_the_same(captures, sampling, shape):
    def make(target):
        return drafter_for(Eagle3Head, target, shape=shape)

    check_drafts_from_graphs(captures, make, sampling)


# --- The text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head_class", "shape"), [(Eagle1Head, TREE), (Eagle3Head, None), (MTPHead, None)]
)
def test_the_text_is_the_targets(target, head_class, shape):
    drafter = drafter_for(head_class, target, drafting="greedy", shape=shape)
    for sampling in (GREEDY, PENALISED):
        how = {"sampling": sampling, "seed": 3, "max_new_tokens": 12}
        got = generate(target, PROMPTS, drafter, k=4, **how)
        assert got.tokens == generate(target, PROMPTS, **how).tokens


@pytest.mark.parametrize("shape", [None, TREE], ids=["chain", "tree"])
def test_rows_of_a_batch_draft_as_each_does_alone(target, shape):
    """Rows that have ended go on drafting for nobody; nothing is left for the next request."""
    drafter = drafter_for(Eagle3Head, target, shape=shape)
    how = {"sampling": PENALISED, "seed": 4, "max_new_tokens": 9, "k": 4}
    together = generate(target, PROMPTS, drafter, **how)
    alone = [generate(target, [prompt], drafter, **how).tokens[0] for prompt in PROMPTS]
    assert together.tokens == alone
    assert generate(target, PROMPTS, drafter, **how).tokens == together.tokens


def law_of(target):
    """The tiny target's own law, from whole texts."""
    return lambda text: logits_behind(target, text)[0].softmax(-1).tolist()


@pytest.mark.parametrize(
    ("head_class", "rule", "drafting", "shape"),
    [
        (Eagle1Head, "match", "greedy", None),
        (Eagle1Head, "reject", "probabilistic", None),
        (Eagle3Head, "reject", "probabilistic", None),
        (MTPHead, "block", "probabilistic", None),
        (Eagle3Head, "reject", "probabilistic", TreeShape(2, 2, (2,))),
    ],
)
def test_the_law_of_the_text_is_the_targets(head_class, rule, drafting, shape):
    """Enumerated over two steps; token 1 is never drafted by the tree."""
    target, kept = (random_target(4, 3), [0, 2]) if shape else (random_target(4, 2), [0, 1])
    drafter = drafter_for(head_class, target, kept=kept, drafting=drafting, shape=shape)
    got = whole_law(target, drafter, 2, rule, 3)
    assert total_variation(got, sequence_law(law_of(target), (0, 1), 3)) < 1e-12


# --- Errors ---------------------------------------------------------------------------------------


def test_a_draft_without_a_start_says_what_is_missing(target):
    context = Context(torch.tensor([[1]]), torch.tensor([1]), torch.tensor([1]))
    with pytest.raises(ValueError, match="call start and observe"):
        drafter_for(MTPHead, target).propose(context, 2, GREEDY, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"drafting": "soft"}, "drafting must be one of"),
        ({"min_confidence": 2.0}, r"min_confidence must lie in \[0, 1\]"),
        ({"min_confidence": 0.5, "shape": TREE}, "leave it out for trees"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be a whole number"),
    ],
)
def test_a_wrong_option_gets_a_sentence(target, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        drafter_for(MTPHead, target, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("shape", [None, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_head_on_features_on_cuda(sampling, captured, shape):
    target = random_target(dtype=torch.float32, device="cuda", graphs=captured)
    drafter = drafter_for(Eagle3Head, target, shape=shape)
    got = generate(target, PROMPTS, drafter, sampling=sampling, max_new_tokens=20)
    assert [len(tokens) for tokens in got.tokens] == [20, 20, 20]
