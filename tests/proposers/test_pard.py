"""PARD: masks filled in one forward, a cache that forgets them, the target's law, its weights.

pytest tests/proposers/test_pard.py
"""

import pytest
import torch

from hand_loop import accept, new_loop, one_step
from recorded_graphs import check_drafts_from_graphs
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import History, Sampling, history_of
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_model import DraftModel
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.pard import METHOD, PARD, new_masked_model
from specdec_lab.proposers.short_model import ShortModel
from specdec_lab.proposers.weights import describe_target, save_weights, trained_state
from specdec_lab.study.overlap import logits_behind
from toys import random_target, sequence_law, total_variation, whole_law

GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
PENALISED = Sampling(
    temperature=1.1, presence_penalty=0.7, repetition_penalty=1.4, bias={1: 0.5, 2: 1.0}
)
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))
MASK = 32  # the first id that the toy target lacks


@pytest.fixture
def target():
    return random_target(max_context=256)


def masked(target, kept=KEPT, num_layers=2) -> ShortModel:
    vocab = DraftVocab(kept, target.vocab_size)
    model = new_masked_model(target, vocab, num_layers)
    generator = torch.Generator().manual_seed(3)
    torch.nn.init.normal_(model.embed.mask, generator=generator)
    torch.nn.init.normal_(model.head.bias, generator=generator)
    return ShortModel(model, vocab, target)


@torch.no_grad()
def filled(model: ShortModel, text, k: int) -> torch.Tensor:
    """Logits (k, Vd) by hand: the whole text and its masks, read anew without a cache."""
    states, _ = model.model(torch.tensor([[*text, *[MASK] * (k - 1)]]))
    return model.model.head(states)[0, -k:]


def texts(context: Context) -> list[list[int]]:
    rows = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]


# --- what is drafted ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5])
def test_drafts_are_those_of_the_whole_text_masked_anew(target, k):
    """Over steps in which the rows of a batch accept all, none and some."""
    model = masked(target)
    loop = new_loop(target, PARD(target, model), k, accept(k, 0, k // 2))
    for _ in range(4):
        expected = [filled(model, text, k).argmax(-1) for text in texts(loop.context)]
        draft = one_step(loop)
        assert draft.tokens.tolist() == [model.vocab.to_target(e).tolist() for e in expected]
        assert draft.probs is None


@pytest.mark.parametrize("sampling", [WARM, PENALISED, Sampling(temperature=0.7, top_k=5)])
def test_the_told_laws_are_those_of_the_masks(target, sampling):
    """They depend on the drafted tokens through penalties alone."""
    model = masked(target)
    loop = new_loop(target, PARD(target, model), 3, accept(3, 1, 0), sampling)
    own = model.vocab.sampling(sampling)
    for _ in range(2):
        context = loop.context
        logits = torch.stack([filled(model, text, 3) for text in texts(context)])  # (B, k, Vd)
        draft = one_step(loop)
        assert torch.equal(draft.draft_to_target, model.vocab.draft_to_target)
        for place in range(3):
            before = Draft(draft.tokens[:, :place], torch.full((3,), place))
            history = history_of(sampling, context, before, 32)
            if history:
                newest = History(history.total[:, -1], history.output[:, -1])
                history = model.vocab.history(newest)
            law = own.probs(logits[:, place], history)
            torch.testing.assert_close(draft.probs[:, place], law, atol=1e-9, rtol=0)


def test_the_first_token_is_a_draft_models_own(target):
    model = masked(target)
    first = one_step(new_loop(target, PARD(target, model), 4)).tokens[:, 0]
    assert torch.equal(first, one_step(new_loop(target, DraftModel(target, model), 1)).tokens[:, 0])


def test_a_mask_is_read_as_its_own_row_and_trained_alone(target):
    model = new_masked_model(target, DraftVocab(KEPT, 32), 1)
    table = target.model.embed.weight
    read = model.embed(torch.tensor([[5, MASK]]))
    assert torch.equal(read[0, 0], table[5])
    torch.testing.assert_close(read[0, 1], table.mean(0))
    read.sum().backward()
    assert model.embed.weight.grad is None
    assert torch.equal(model.embed.mask.grad, torch.ones(32, dtype=torch.float64))


def test_the_cache_holds_committed_tokens_and_no_mask(target):
    drafter = PARD(target, masked(target))
    loop = new_loop(target, drafter, 4, accept(4, 1, 0))
    for _ in range(3):
        before = loop.context.lengths
        one_step(loop)
        assert torch.equal(drafter.num_read, before)


def test_steps_without_a_draft_are_caught_up_with(target):
    model = masked(target)
    drafter = PARD(target, model)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0))
    one_step(loop)
    for token in (5, 6, 7):  # committed without a draft
        tokens, one = torch.full((3, 1), token), torch.ones(3, dtype=torch.long)
        loop._commit(tokens, one)
        drafter.observe(tokens, one, {})
    draft = drafter.propose(loop.context, 2, GREEDY, loop.randomness)
    expected = [filled(model, text, 2).argmax(-1) for text in texts(loop.context)]
    assert draft.tokens.tolist() == [model.vocab.to_target(e).tolist() for e in expected]
    assert drafter.propose(loop.context, 0, GREEDY, loop.randomness).tokens.shape == (3, 0)


def test_a_row_ends_behind_a_token_that_is_unsure(target):
    model = masked(target)
    sure = filled(model, PROMPTS[0], 4).softmax(-1).amax(-1)  # (k,)
    confidence = float(sure[0]) + 1e-3
    drafter = PARD(target, model, min_confidence=confidence)
    draft = drafter_of_first_row(target, drafter)
    assert int(draft.count) == 1 + int((sure >= confidence).long().cumprod(0).sum())
    drafter = PARD(target, model, min_confidence=float(sure.min()) - 1e-3)
    assert int(drafter_of_first_row(target, drafter).count) == 4


def drafter_of_first_row(target, drafter) -> Draft:
    return one_step(new_loop(target, drafter, 4, prompts=PROMPTS[:1]))


# --- the text -------------------------------------------------------------------------------------


def test_the_text_is_the_targets(target):
    plain = generate(target, PROMPTS, max_new_tokens=25)
    drafter = PARD(target, masked(target))
    assert generate(target, PROMPTS, drafter, max_new_tokens=25).tokens == plain.tokens
    one_hot = PARD(target, masked(target), "greedy")
    how = {"sampling": PENALISED, "seed": 3, "max_new_tokens": 25}
    got = generate(target, PROMPTS, one_hot, **how)
    assert got.tokens == generate(target, PROMPTS, **how).tokens


@pytest.mark.parametrize("sampling", [GREEDY, PENALISED])
def test_rows_of_a_batch_draft_as_each_does_alone(target, sampling):
    drafter = PARD(target, masked(target))
    how = {"sampling": sampling, "seed": 4, "max_new_tokens": 14, "k": 5}
    together = generate(target, PROMPTS, drafter, **how)
    alone = [generate(target, [prompt], drafter, **how).tokens[0] for prompt in PROMPTS]
    assert together.tokens == alone
    assert generate(target, PROMPTS, drafter, **how).tokens == together.tokens  # nothing is left


@pytest.mark.parametrize(
    ("rule", "drafting"),
    [("match", "greedy"), ("reject", "probabilistic"), ("block", "probabilistic")],
)
@pytest.mark.parametrize(("vocab_size", "kept", "k"), [(2, [0, 1], 2), (3, [0, 2], 1)])
def test_the_law_of_the_text_is_the_targets(rule, drafting, vocab_size, kept, k):
    """Enumerated over two steps; in the second case token 1 can never be drafted."""
    target, max_new = random_target(4, vocab_size), k + 1
    drafter = PARD(target, masked(target, kept, 1), drafting)
    got = whole_law(target, drafter, k, rule, max_new)

    def law(context):
        return logits_behind(target, context)[0].softmax(-1).tolist()

    assert total_variation(got, sequence_law(law, (0, 1), max_new)) < 1e-12


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_whole_step_reads_nothing_on_the_host(drafting):
    target = random_target(dtype=torch.float32, device="meta")
    vocab = DraftVocab(KEPT, 32)
    drafter = PARD(
        target,
        ShortModel(new_masked_model(target, vocab, 1), vocab, target),
        drafting,
        min_confidence=0.5,
    )
    sampling = Sampling(temperature=0.8, frequency_penalty=0.1, bias={2: 1.0})
    loop = new_loop(target, drafter, 3, sampling=sampling)
    for _ in range(3):
        admitted = loop.propose()
        assert loop.advance(admitted, loop.score(admitted.draft)).is_meta
        assert admitted.draft.tokens.shape == (3, 3)


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_replayed_steps_draft_the_same(captures, sampling):
    check_drafts_from_graphs(captures, lambda target: PARD(target, masked(target)), sampling)


def test_a_device_reads_enough_without_asking_how_much(target, monkeypatch):
    """The width that is known without reading holds whatever a row may lack."""
    model = masked(target)
    drafter = PARD(target, model)

    def unread(context):
        lengths = context.lengths
        places = drafter.num_read[:, None] + torch.arange(drafter.catch_up)
        tokens = context.tokens.gather(1, places.clamp(max=context.tokens.shape[1] - 1))
        return tokens, lengths - drafter.num_read

    monkeypatch.setattr(drafter, "_missing", unread)
    loop = new_loop(target, drafter, 3, accept(3, 0, 2))
    for _ in range(4):
        expected = [filled(model, text, 3).argmax(-1) for text in texts(loop.context)]
        assert one_step(loop).tokens.tolist() == [
            model.vocab.to_target(e).tolist() for e in expected
        ]


def test_a_draft_without_a_start_says_what_is_missing(target):
    context = Context(torch.tensor([[1]]), torch.tensor([1]), torch.tensor([1]))
    with pytest.raises(ValueError, match="call start and observe"):
        PARD(target, masked(target)).propose(context, 2, GREEDY, None)


# --- weights --------------------------------------------------------------------------------------


def saved(path, target, storage="float16", **metadata):
    vocab = DraftVocab(KEPT, target.vocab_size)
    model = new_masked_model(target, vocab, 1)
    tensors = trained_state(model) | {"draft_to_target": vocab.draft_to_target}
    described = {"method": METHOD, **describe_target(target), "num_layers": "1", **metadata}
    save_weights(path, tensors, described, storage)
    return model


@pytest.mark.parametrize(("storage", "error"), [("float16", 1e-2), ("int8", 0.3)])
def test_weights_come_back(tmp_path, storage, error, whole_products):
    target, path = random_target(dtype=torch.float32), tmp_path / "w.safetensors"
    model = saved(path, target, storage)
    drafter = PARD(target, path)
    assert drafter.card["parameters"] == sum(t.numel() for t in trained_state(model).values())
    again = drafter.model.model
    ids = torch.tensor([[3, 1, MASK, MASK]])
    torch.testing.assert_close(again(ids)[0], model(ids)[0], atol=error, rtol=0)
    torch.testing.assert_close(again.embed.mask, model.embed.mask, atol=1e-3, rtol=0)


def test_load_proposer_finds_weights_by_name_and_by_vllms_words(tmp_path, monkeypatch):
    target = random_target(dtype=torch.float32)
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    with pytest.raises(OSError, match=r"no trained weights.*specdec_lab train pard"):
        load_proposer("pard", target)
    path = tmp_path / f"{METHOD}.safetensors"
    saved(path, target)
    assert type(load_proposer("pard", target)) is PARD
    vllm = {"method": "draft_model", "parallel_drafting": True, "draft_sample_method": "greedy"}
    for config in (vllm, {**vllm, "model": str(path), "num_speculative_tokens": 12}):
        drafter = load_proposer(config, target)
        assert (type(drafter), drafter.drafting) == (PARD, "greedy")
    assert drafter.default_k == 12  # more than it was trained for, if so wished
    one_by_one = {"method": "draft_model", "parallel_drafting": False, "model": target}
    assert type(load_proposer(one_by_one, target)) is DraftModel


def test_weights_of_another_method_or_shape_are_refused(tmp_path):
    target, path = random_target(dtype=torch.float32), tmp_path / "w.safetensors"
    saved(path, target)
    with pytest.raises(ValueError, match="vocab_size is 32 there and 40 here"):
        PARD(random_target(vocab_size=40, dtype=torch.float32), path)
    saved(path, target, method="draft_model")
    with pytest.raises(ValueError, match="holds weights for draft_model, not for pard"):
        PARD(target, path)
    saved(path, target, num_layers="2")
    with pytest.raises(ValueError, match="The weights do not fit"):
        PARD(target, path)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_pard_on_cuda(sampling, captured):
    target = random_target(dtype=torch.float32, device="cuda", graphs=captured)
    vocab = DraftVocab(KEPT, 32)
    model = ShortModel(new_masked_model(target, vocab, 1), vocab, target)
    got = generate(target, PROMPTS, PARD(target, model), k=5, sampling=sampling, max_new_tokens=20)
    assert [len(tokens) for tokens in got.tokens] == [20, 20, 20]
