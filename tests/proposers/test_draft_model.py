"""The draft model: two caches in step, the q that was drawn from, vocabularies, and the target's
law.

pytest tests/proposers/test_draft_model.py
"""

import pytest
import torch

from hand_loop import accept, new_loop, one_step
from recorded_graphs import check_drafts_from_graphs
from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.low_bit import low_bit_copy
from specdec_lab.decoding.randomness import CounterRandomness, Lane
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.decoding.target import classify_mismatch, probe_rows
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.draft_tree import DraftTree
from specdec_lab.study.overlap import logits_behind
from toys import (
    ToyTarget,
    random_law,
    random_target,
    sequence_law,
    total_variation,
    whole_law,
)

GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
PENALISED = Sampling(temperature=1.1, presence_penalty=0.7, repetition_penalty=1.4, bias={1: 0.5})
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]


class Vocabulary:
    """A tokenizer that knows its words and nothing else."""

    def __init__(self, words: str) -> None:
        self.words = words

    def get_vocab(self):
        """Word to id."""
        return {word: number for number, word in enumerate(self.words)}


@pytest.fixture
def target():
    return random_target(max_context=512)


@pytest.fixture
def drafter(target):
    """Another random model, so that most drafts are refused."""
    return DraftModel(target, random_target(1, max_context=512))


def missing(loop: Loop) -> list[int]:
    """How many committed tokens each row of the draft's cache lacks."""
    return (loop.context.lengths - loop.request.proposer.num_read).tolist()


# --- two caches in step ---------------------------------------------------------------------------


def test_a_draft_that_is_the_target_is_always_accepted_case_21(target):
    loop = new_loop(target, DraftModel(target, target), 5, budget=320)
    for _ in range(50):
        before = loop.context.lengths
        one_step(loop)
        assert (loop.context.lengths - before).tolist() == [6, 6, 6]
        assert missing(loop) == [2, 2, 2]  # the last drafted token and the bonus
        assert torch.equal(loop.cache.lengths, loop.context.lengths - 1)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_both_caches_hold_what_was_accepted_for_every_number_case_21(target, drafter, k):
    for accepted in range(k + 1):
        loop = new_loop(target, drafter, k, accept(accepted, k - accepted, 0))
        for _ in range(4):
            one_step(loop)
            assert torch.equal(loop.cache.lengths, loop.context.lengths - 1)
            assert missing(loop) == [1 + (a == k) for a in (accepted, k - accepted, 0)]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_what_is_drafted_is_what_a_fresh_reader_would_draft(target, drafter, k):
    """After refusals, full acceptance and catch-up the cache is as if the text were read anew."""
    loop = new_loop(target, drafter, k, accept(k, 0, k - 1))
    for _ in range(4):
        rows = [
            row[:length].tolist()
            for row, length in zip(loop.context.tokens, loop.context.lengths, strict=True)
        ]
        drafted = one_step(loop).tokens.tolist()
        for row, tokens in zip(rows, drafted, strict=True):
            for place, token in enumerate(tokens):
                text = [*row, *tokens[:place]]
                assert token == int(logits_behind(drafter.model, text)[0].argmax())


def test_a_skipped_step_leaves_a_longer_gap_that_is_closed(target, drafter):
    loop = new_loop(target, drafter, 3, accept(3, 1, 0))
    one_step(loop)
    for token in (5, 6, 7):  # committed without a draft
        tokens, one = torch.full((3, 1), token), torch.ones(3, dtype=torch.long)
        loop._commit(tokens, one)
        drafter.observe(tokens, one, {})
    assert missing(loop) == [5, 4, 4]
    draft = drafter.propose(loop.context, 1, GREEDY, loop.randomness)
    for row, length, token in zip(
        loop.context.tokens.tolist(), loop.context.lengths.tolist(), draft.tokens, strict=True
    ):
        assert int(token) == int(logits_behind(drafter.model, row[:length])[0].argmax())


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_nothing_is_left_over_from_another_call_case_25(target, drafter, sampling):
    how = {"k": 3, "sampling": sampling, "seed": 5, "max_new_tokens": 30}

    def run_a():
        got = generate(target, PROMPTS, drafter, **how)
        return got.tokens, [(s.drafted, s.num_accepted) for s in got.trace.steps]

    first = run_a()
    generate(target, [[8, 8, 8, 8]], drafter, **how)
    with pytest.raises(RuntimeError, match="stop here"):
        generate(target, PROMPTS, drafter, **how, stop=broken_stop)
    assert run_a() == first


def broken_stop(ids, new):
    """A stop rule that fails in the middle."""
    if len(ids) > 4:
        raise RuntimeError("stop here")


def test_a_draft_without_a_start_says_what_is_missing(target, drafter):
    context = Context(torch.tensor([[1]]), torch.tensor([1]), torch.tensor([1]))
    with pytest.raises(ValueError, match="call start and observe"):
        drafter.propose(context, 2, GREEDY, None)


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_whole_step_reads_nothing_on_the_host(drafting):
    target = random_target(dtype=torch.float32, device="meta")
    model = random_target(1, 24, torch.bfloat16, device="meta")
    drafter = DraftModel(target, model, drafting, min_confidence=0.5)
    sampling = Sampling(temperature=0.8, frequency_penalty=0.1)
    asked = Request.checked(target, [[1, 2], [3]], drafter, 3, sampling, "auto", 9, None)
    loop = Loop(target, asked, CounterRandomness([1, 2], "meta"))
    for _ in range(2):
        admitted = loop.propose()
        report = loop.advance(admitted, loop.score(admitted.draft))
        assert report.is_meta
        assert admitted.draft.tokens.shape == (2, 3)
        assert (admitted.draft.probs is None) == (drafting == "greedy")


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_replayed_steps_draft_the_same(captures, sampling):
    def make(target):
        draft = random_target(1, max_context=512, graphs=target.graphs)
        return DraftModel(target, draft)

    check_drafts_from_graphs(captures, make, sampling)


# --- the law that is told is the law that was drawn from ------------------------------------------


@pytest.mark.parametrize("sampling", [WARM, PENALISED, Sampling(temperature=0.7, top_k=5)])
def test_the_told_law_is_the_models_own_along_the_drafted_path(target, drafter, sampling):
    loop = new_loop(target, drafter, 4, accept(4, 2, 0), sampling=sampling)
    for _ in range(3):
        context = loop.context
        draft = one_step(loop)
        assert torch.equal(draft.probs.sum(-1).round(decimals=9), torch.ones(3, 4).double())
        for b, length in enumerate(context.lengths.tolist()):
            text = context.tokens[b, :length].tolist()
            tokens = draft.tokens[b : b + 1]
            row = Context(
                context.tokens[b : b + 1],
                context.lengths[b : b + 1],
                context.prompt_lengths[b : b + 1],
            )
            before = Draft(tokens[:, :3], torch.tensor([3]))
            logits = logits_behind(drafter.model, [*text, *tokens[0, :3].tolist()], 4)
            law = sampling.probs(logits[None], history_of(sampling, row, before, 32))[0]
            torch.testing.assert_close(draft.probs[b], law, atol=1e-9, rtol=0)


def test_tokens_are_drawn_from_that_very_tensor_case_2(target, drafter):
    class Spy:
        def __init__(self):
            self.laws = []

        def draw(self, probs, position, lane, offset=0):
            assert lane == Lane.DRAFT
            assert offset == len(self.laws)
            self.laws.append(probs)
            return chance.draw(probs, position, lane, offset)

    loop = new_loop(target, drafter, 3)
    chance, spy = loop.randomness, Spy()
    draft = drafter.propose(loop.context, 3, WARM, spy)
    assert torch.equal(draft.probs, torch.stack(spy.laws, 1))


@pytest.mark.parametrize("sampling", [GREEDY, WARM, PENALISED])
def test_greedy_drafts_are_one_hot_case_1(target, sampling):
    drafter = DraftModel(target, random_target(1), drafting="greedy")
    loop = new_loop(target, drafter, 3, sampling=sampling)
    draft = one_step(loop)
    assert draft.probs is None
    got = generate(target, PROMPTS, drafter, k=3, sampling=sampling, seed=3, max_new_tokens=20)
    plain = generate(target, PROMPTS, sampling=sampling, seed=3, max_new_tokens=20)
    assert got.tokens == plain.tokens  # sample-and-match: the same seed, the same text


@pytest.mark.parametrize("sampling", [WARM, PENALISED])
def test_rows_of_a_batch_draft_as_each_does_alone(target, drafter, sampling):
    how = {"k": 3, "sampling": sampling, "seed": 4, "max_new_tokens": 25}
    together = generate(target, PROMPTS, drafter, **how)
    alone = [generate(target, [prompt], drafter, **how).tokens[0] for prompt in PROMPTS]
    assert together.tokens == alone


# --- exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab_size", "k", "max_new"), [(2, 2, 3), (3, 1, 2)])
@pytest.mark.parametrize(
    ("rule", "drafting"),
    [("match", "greedy"), ("reject", "probabilistic"), ("block", "probabilistic")],
)
def test_the_law_of_the_text_is_the_targets(rule, drafting, vocab_size, k, max_new):
    law = random_law(7, vocab_size)
    target = ToyTarget(law, vocab_size)
    drafter = DraftModel(target, random_target(2, vocab_size), drafting)
    got = whole_law(target, drafter, k, rule, max_new)
    assert total_variation(got, sequence_law(law, (0, 1), max_new)) < 1e-12


@pytest.mark.parametrize("rule", ["reject", "block"])
def test_the_law_of_the_text_is_the_targets_under_penalties(rule):
    law = random_law(8, 2)
    target = ToyTarget(law, 2)
    sampling = Sampling(temperature=0.8, presence_penalty=0.6, repetition_penalty=1.3)

    def transformed(context: tuple[int, ...]) -> list[float]:
        past = Context(torch.tensor([context]), torch.tensor([len(context)]), torch.tensor([2]))
        logits = torch.tensor([[law(context)]], dtype=torch.float64).log()
        return sampling.probs(logits, history_of(sampling, past, Draft.empty(1), 2))[0, 0].tolist()

    drafter = DraftModel(target, random_target(2, 2))
    got = whole_law(target, drafter, 2, rule, 3, sampling)
    assert total_variation(got, sequence_law(transformed, (0, 1), 3)) < 1e-12


# --- a draft that stops early ---------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, WARM, PENALISED])
def test_a_row_stops_behind_the_first_token_it_is_not_sure_of(target, sampling):
    model = random_target(1, max_context=512)
    full = new_loop(target, DraftModel(target, model), 4, sampling=sampling)
    draft = full.request.proposer.propose(full.context, 4, sampling, full.randomness)
    sure = confidence(full, draft)  # (B, 4)
    least = float(sure[0, 1]) + 1e-6  # the first row stops behind its second token, or its first
    loop = new_loop(target, DraftModel(target, model, min_confidence=least), 4, sampling=sampling)
    short = loop.request.proposer.propose(loop.context, 4, sampling, loop.randomness)
    goes_on = (sure >= least).long().cumprod(1)[:, :3]
    assert torch.equal(short.count, 1 + goes_on.sum(1))
    width = int(short.count.max())
    assert short.tokens.shape[1] == width  # the loop ends with the last row
    assert torch.equal(short.tokens, draft.tokens[:, :width])


def confidence(loop: Loop, draft: Draft) -> torch.Tensor:
    """What the draft's own law gives each of its tokens, (B, k)."""
    if draft.probs is not None:
        return draft.probs.gather(2, draft.tokens[..., None])[..., 0]
    rows = []
    for row, length, tokens in zip(
        loop.context.tokens, loop.context.lengths, draft.tokens, strict=True
    ):
        text = [*row[:length].tolist(), *tokens[:-1].tolist()]
        law = logits_behind(loop.request.proposer.model, text, len(tokens)).float().softmax(-1)
        rows.append(law.gather(1, tokens[:, None])[:, 0])
    return torch.stack(rows)


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_caches_stay_in_step_when_rows_stop_at_different_places(target, sampling):
    drafter = DraftModel(target, random_target(0, dtype=torch.bfloat16), min_confidence=0.12)
    how = {"sampling": sampling, "seed": 3, "max_new_tokens": 40}
    got = generate(target, PROMPTS, drafter, k=4, **how)
    alone = [generate(target, [prompt], drafter, k=4, **how).tokens[0] for prompt in PROMPTS]
    assert got.tokens == alone
    assert len({len(step.drafted) for step in got.trace.steps}) > 1
    if sampling is GREEDY:
        assert got.tokens == generate(target, PROMPTS, **how).tokens


@pytest.mark.parametrize(
    ("rule", "drafting"),
    [("match", "greedy"), ("reject", "probabilistic"), ("block", "probabilistic")],
)
def test_the_law_is_the_targets_when_drafts_stop_early(rule, drafting):
    """Of two tokens the less probable one ends a draft."""
    law = random_law(9, 2)
    target = ToyTarget(law, 2)
    drafter = DraftModel(target, random_target(2, 2), drafting, min_confidence=0.5)
    got = whole_law(target, drafter, 2, rule, 3, Sampling(temperature=1.0))
    assert total_variation(got, sequence_law(law, (0, 1), 3)) < 1e-12


# --- vocabularies and precisions ------------------------------------------------------------------


@pytest.mark.parametrize(("draft_width", "target_width"), [(6, 8), (8, 6), (6, 6), (4, 8)])
@pytest.mark.parametrize("sampling", [GREEDY, WARM, PENALISED])
def test_17_pads_of_either_table_are_never_drafted(draft_width, target_width, sampling):
    """Four real tokens; the largest logit of the draft stands at a pad."""
    target = random_target(0, target_width)
    model = random_target(1, draft_width)
    target.tokenizer, model.tokenizer = Vocabulary("abcd"), Vocabulary("abcd")
    drafter = DraftModel(target, model)
    loop = new_loop(target, drafter, 3, prompts=[[0, 1, 2], [3]], budget=9, sampling=sampling)
    tempt = torch.zeros(draft_width, dtype=torch.float64)
    tempt[4:] = 1e3
    head = model.model.head
    head.bias = tempt
    draft = drafter.propose(loop.context, 3, sampling, loop.randomness)
    assert int(draft.tokens.max()) < 4
    if draft.probs is not None:
        assert draft.probs.shape == (2, 3, target_width)
        assert float(draft.probs[..., 4:].abs().max() if target_width > 4 else 0) == 0
    got = generate(target, [[0, 1, 2]], drafter, k=3, sampling=GREEDY, max_new_tokens=12)
    assert got.tokens == generate(target, [[0, 1, 2]], max_new_tokens=12).tokens


def test_17_ids_that_the_drafts_table_lacks_can_be_read(target):
    drafter = DraftModel(target, random_target(1, 8))
    got = generate(target, [[31, 30, 9]], drafter, k=3, max_new_tokens=12)
    assert got.tokens == generate(target, [[31, 30, 9]], max_new_tokens=12).tokens


def test_17_another_tokenizer_is_an_error_that_names_an_id(target):
    model = random_target(1)
    target.tokenizer, model.tokenizer = Vocabulary("abcd"), Vocabulary("abdc")
    with pytest.raises(ValueError, match=r"id 2 is 'd' there and 'c' here.*notebook 17"):
        DraftModel(target, model)
    model.tokenizer = Vocabulary("abcde")
    with pytest.raises(ValueError, match=r"id 4 is 'e' there and None here"):
        DraftModel(target, model)
    model.tokenizer = Vocabulary("abcd")
    assert DraftModel(target, model).num_shared == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_20_a_draft_of_another_precision(target, dtype, sampling):
    drafter = DraftModel(target, random_target(0, dtype=dtype))
    got = generate(target, PROMPTS, drafter, k=3, sampling=sampling, seed=1, max_new_tokens=30)
    assert got.trace.alpha > 0.5  # the same weights, rounded
    if sampling is GREEDY:
        assert got.tokens == generate(target, PROMPTS, max_new_tokens=30).tokens


def test_20_a_draft_of_no_numbers_warns_and_decodes_plainly(target):
    model = random_target(1)
    model.model.head.bias = torch.full((32,), torch.nan, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="no law"):
        got = generate(
            target, [[1, 2]], DraftModel(target, model), sampling=WARM, seed=1, max_new_tokens=8
        )
    assert got.trace.num_drafted == 0


# --- configuration --------------------------------------------------------------------------------


def test_options_are_checked(target):
    with pytest.raises(ValueError, match="drafting must be one of probabilistic, greedy"):
        DraftModel(target, target, drafting="beam")
    with pytest.raises(ValueError, match="num_speculative_tokens must be"):
        DraftModel(target, target, num_speculative_tokens=-1)
    with pytest.raises(ValueError, match="min_confidence must lie in"):
        DraftModel(target, target, min_confidence=1.5)
    with pytest.raises(OSError, match="no/such/model"):
        DraftModel(target, "no/such/model")


@pytest.mark.parametrize("model", ["int4", "int8"])
def test_a_twin_drafts_and_the_text_is_the_targets(model):
    target = random_target(dtype=torch.float32)
    drafter = DraftModel(target, model, num_speculative_tokens=3)
    got = generate(target, PROMPTS, drafter, max_new_tokens=30)
    assert got.tokens == generate(target, PROMPTS, max_new_tokens=30).tokens
    assert got.trace.alpha > 0.3
    assert max(len(step.drafted) for step in got.trace.steps) == 3


@pytest.mark.parametrize("make", [DraftModel, DraftTree])
def test_a_twin_drafts_on_the_targets_cache_and_leaves_no_mark(target, make):
    """It starts from what the target has read; the target goes on from its own entries."""
    loop = new_loop(target, make(target, "int4"), 4, accept(2, 1, 0))
    plain = target.start(3, loop.cache.capacity)
    for _ in range(3):
        one_step(loop)
        assert missing(loop) == [1, 1, 1]  # the pending token, whatever was accepted
    tokens, counts = loop.context.tokens, loop.context.lengths - 1
    target.prefill(plain, tokens, counts)
    for layer in range(target.num_layers):
        both = zip(loop.cache.read(layer, 32), plain.read(layer, 32), strict=True)
        for got, expected in both:
            for row, length in enumerate(counts.tolist()):
                ours, theirs = got[row, :, :length], expected[row, :, :length]
                torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)


@torch.no_grad()
def test_a_twin_says_what_rounded_layers_say_behind_the_targets_entries(target):
    twin = DraftModel(target, "int4")
    loop = new_loop(target, twin, 2)
    one_step(loop)
    cache, pending = loop.cache.shared(), loop.context.pending[:, None]
    states, _ = twin.model.model(pending, cache)
    expected = twin.model.model.head(states)[:, 0].argmax(-1)
    assert torch.equal(loop.propose().draft.tokens[:, 0], expected)


@pytest.mark.parametrize("rule", ["reject", "block"])
def test_the_law_is_the_targets_when_its_twin_shares_its_cache(rule, monkeypatch):
    target = random_target(4, vocab_size=2)

    def law(context: tuple[int, ...]) -> list[float]:
        return logits_behind(target, list(context))[0].double().softmax(-1).tolist()

    def distance() -> float:
        twin = DraftModel(target, "int4")  # rounded for few rows only, so one branch at a time
        got = whole_law(target, twin, 2, rule, 3, Sampling(temperature=1.0), width=1)
        return total_variation(got, sequence_law(law, (0, 1), 3))

    assert distance() < 1e-12
    right = KVCache.shared

    def a_slot_too_early(cache: KVCache) -> KVCache:
        second = right(cache)
        second.lengths = second.lengths - 1
        return second

    monkeypatch.setattr(KVCache, "shared", a_slot_too_early)  # writes on a committed entry
    assert distance() > 1e-6


def test_a_twin_reads_the_text_itself_where_it_must_or_should(target):
    shared, own = DraftModel(target, "int8"), DraftModel(target, low_bit_copy(target, 8))
    for drafter in (shared, own):
        loop = new_loop(target, drafter, 3, accept(3, 3, 3))
        one_step(loop)
        assert missing(loop) == ([1] * 3 if drafter is shared else [2] * 3)
    shared.start(3, loop.cache.capacity + 1)  # more than the target's cache has room for
    shared.share(loop.cache)
    shared.observe(torch.tensor([[1, 2]] * 3), torch.tensor([2] * 3), {})
    assert shared.num_read.tolist() == [2] * 3
    assert torch.equal(loop.cache.lengths, loop.context.lengths - 1)


@pytest.mark.parametrize("make", [DraftModel, DraftTree])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_replayed_steps_of_a_twin_draft_the_same(captures, make, sampling):
    check_drafts_from_graphs(captures, lambda target: make(target, "int4"), sampling)


def test_a_twin_says_what_it_takes_to_have_it(target):
    low = DraftModel(random_target(dtype=torch.float32), "int8").card
    arch = target.model.arch
    assert low["parameters"] > arch.vocab_size * arch.hidden_size  # its head, and the layers
    rows = 1e6 * low["megabytes"] - low["parameters"]  # a byte a number, 4 a row
    assert 0 < rows < low["parameters"]
    assert low["training_minutes"] == 0
    assert DraftModel(target, target).card == {}


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_draft_model_on_cuda(sampling, captured):
    target = random_target(dtype=torch.float32, device="cuda", graphs=captured)
    for model in ("int4", random_target(1, dtype=torch.bfloat16, device="cuda", graphs=captured)):
        got = generate(
            target, PROMPTS, DraftModel(target, model), sampling=sampling, seed=0, max_new_tokens=20
        )
        assert [len(tokens) for tokens in got.tokens] == [20, 20, 20]


@pytest.mark.model
@pytest.mark.parametrize("model", ["int4", "int8"])
def test_the_twin_of_the_real_model_writes_its_text_in_few_forwards(default_model, model):
    target = default_model
    (ids,) = [prompt.ids(target) for prompt in load_prompts("chat")[:1]]
    plain = generate(target, [ids], max_new_tokens=32)
    got = generate(target, [ids], DraftModel(target, model), k=4, max_new_tokens=32)
    excused = {"equal"} if all(probe_rows(target).values()) else {"equal", "tie"}
    assert classify_mismatch(target, ids, plain.tokens[0], got.tokens[0]) in excused
    assert got.trace.tau > 2
