"""The MLP speculator: the state it starts from, the law it tells, the target's law, its weights.

pytest tests/proposers/test_mlp_speculator.py
"""

import pytest
import torch

from hand_loop import accept, check_node, new_loop, one_step, path_of, rows_of
from recorded_graphs import check_drafts_from_graphs
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.mlp_speculator import (
    METHOD,
    MLPSpeculator,
    MLPStages,
    new_stages,
)
from specdec_lab.proposers.weights import (
    describe_target,
    read_weights,
    save_weights,
    trained_state,
)
from specdec_lab.study.overlap import logits_behind
from toys import random_target, sequence_law, total_variation, whole_law

GREEDY, WARM = Sampling(), Sampling(temperature=0.9)
PENALISED = Sampling(
    temperature=1.1, presence_penalty=0.7, repetition_penalty=1.4, bias={1: 0.5, 2: 1.0}
)
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]
KEPT = list(range(0, 32, 2))
TREE = {"tree": True, "width": 3, "depth": 3, "branching": (3, 2, 1)}
FORMS = pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])


def stages_for(target, kept=KEPT, num_stages=3, seed=0) -> tuple[MLPStages, DraftVocab]:
    vocab = DraftVocab(kept, target.vocab_size)
    stages = new_stages(target, vocab, num_stages, width=24)
    stages.initialise(torch.Generator().manual_seed(seed), 4.0)
    torch.nn.init.normal_(stages.state_mean, generator=torch.Generator().manual_seed(1))
    return stages, vocab


def speculator(target, drafting="probabilistic", tree=None, **how) -> MLPSpeculator:
    stages, vocab = stages_for(target, **how)
    options = TREE if tree else {}
    return MLPSpeculator(target, stages, drafting, vocab=vocab, **options)


@pytest.fixture
def target():
    return random_target(max_context=256)


def final_state(target, ids) -> torch.Tensor:
    """The target's state (H,) behind the last of ``ids``, from a fresh forward."""
    _, hidden = target.model(torch.tensor([ids]), None, (target.num_layers,))
    return hidden[target.num_layers][0, -1]


# --- the state and the law ------------------------------------------------------------------------


def test_19_the_state_is_the_targets_own_behind_all_but_the_pending_token(target):
    """After full, partial and no acceptance: never a guess, never one place off."""
    drafter = speculator(target)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0))
    for _ in range(4):
        for row, length, state in zip(
            loop.context.tokens.tolist(), loop.context.lengths, drafter._state, strict=True
        ):
            if length > 1:
                expected = final_state(target, row[: length - 1])
                torch.testing.assert_close(state, expected, atol=1e-9, rtol=0)
        one_step(loop)


def test_19_a_stage_that_copies_tells_state_and_token_apart():
    """Weights by hand: the first stage repeats the pending token, the others what was drafted."""
    target = random_target(vocab_size=16, dtype=torch.float64)
    embedding = torch.eye(16, 32, dtype=torch.float64)
    target.model.embed.weight.data.copy_(embedding)
    vocab = DraftVocab(range(16), 16)
    stages = MLPStages(embedding, vocab.head_of(target), num_stages=3, width=32)
    stages.head.weight.data.copy_(embedding)
    for linear in (*stages.carry, stages.token, stages.output):
        torch.nn.init.zeros_(linear.weight)
    for linear in (stages.token, stages.output):
        linear.weight.data.copy_(torch.eye(32))
    drafter = MLPSpeculator(target, stages, vocab=vocab)
    loop = new_loop(target, drafter, 3, prompts=[[3, 1], [2], [5, 4]])
    assert one_step(loop).tokens.tolist() == [[1] * 3, [2] * 3, [4] * 3]


@pytest.mark.parametrize("sampling", [WARM, PENALISED, Sampling(temperature=0.7, top_k=5)])
def test_the_told_law_is_that_of_the_stages_along_the_drafted_path(target, sampling):
    stages, vocab = stages_for(target)
    drafter = MLPSpeculator(target, stages, vocab=vocab)
    loop = new_loop(target, drafter, 3, accept(3, 1, 0), sampling)
    for _ in range(2):
        context, carried = loop.context, stages.first(drafter._state)
        draft = one_step(loop)
        assert torch.equal(draft.draft_to_target, vocab.draft_to_target)
        assert bool((vocab.to_draft(draft.tokens) >= 0).all())
        newest = context.pending
        for place in range(3):
            carried = stages.stage(place, carried, newest)
            before = Draft(draft.tokens[:, :place], torch.full((3,), place))
            history = history_of(sampling, context, before, 32)
            if history:
                history = vocab.history(type(history)(history.total[:, -1], history.output[:, -1]))
            law = vocab.sampling(sampling).probs(stages.logits(carried), history)
            torch.testing.assert_close(draft.probs[:, place], law, atol=1e-9, rtol=0)
            newest = draft.tokens[:, place]


@torch.no_grad()
def law_by_hand(stages, state, path) -> torch.Tensor:
    """The warm law (Vd,) behind the pending token and the drafted ones of ``path``."""
    carried = stages.first(state)
    for number, token in enumerate(path):
        carried = stages.stage(number, carried, torch.tensor(token))
    return (stages.logits(carried) / WARM.temperature).softmax(-1)


@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_node_of_a_tree_is_drafted_by_the_stages_along_its_path(target, drafting):
    drafter = speculator(target, drafting, tree=True)
    loop = new_loop(target, drafter, 9, accept(2, 1, 0), WARM)
    for _ in range(3):
        rows, states, draft = rows_of(loop.context), drafter._state, one_step(loop)
        for b, row in enumerate(rows):
            tokens, parents = draft.tokens[b].tolist(), draft.parents[b].tolist()
            for node in range(int(draft.count[b])):
                above = path_of(tokens, parents, node)[:-1]
                law = law_by_hand(drafter.stages, states[b], [row[-1], *above])
                check_node(draft, b, node, law, drafter.vocab)


def test_a_tree_is_as_deep_as_there_are_stages(target):
    assert speculator(target, tree=True).max_k is None
    stages, vocab = stages_for(target)
    for options in ({"depth": 4, "branching": (2, 1)}, {"depth": 2, "branching": (1, 1, 1, 1)}):
        with pytest.raises(ValueError, match=r"have 3 stages.* 4 are too many"):
            MLPSpeculator(target, stages, vocab=vocab, tree=True, **options)


def test_it_drafts_no_more_than_it_has_stages(target):
    drafter = speculator(target)
    assert (drafter.max_k, drafter.default_k) == (3, 3)
    with pytest.raises(ValueError, match="k must be a whole number, from 0 to 3"):
        generate(target, PROMPTS, drafter, k=4)
    assert one_step(new_loop(target, drafter, 2)).tokens.shape == (3, 2)


@FORMS
def test_the_text_is_the_targets(target, tree):
    drafter = speculator(target, tree=tree)
    plain = generate(target, PROMPTS, max_new_tokens=25)
    assert generate(target, PROMPTS, drafter, max_new_tokens=25).tokens == plain.tokens
    one_hot = speculator(target, "greedy", tree)
    how = {"sampling": PENALISED, "seed": 3, "max_new_tokens": 25}
    got = generate(target, PROMPTS, one_hot, **how)
    assert got.tokens == generate(target, PROMPTS, **how).tokens


@FORMS
@pytest.mark.parametrize("sampling", [WARM, PENALISED])
def test_rows_of_a_batch_draft_as_each_does_alone(target, sampling, tree):
    drafter = speculator(target, tree=tree)
    how = {"sampling": sampling, "seed": 4, "max_new_tokens": 20}
    together = generate(target, PROMPTS, drafter, **how)
    alone = [generate(target, [prompt], drafter, **how).tokens[0] for prompt in PROMPTS]
    assert together.tokens == alone
    assert generate(target, PROMPTS, drafter, **how).tokens == together.tokens  # nothing is left


@FORMS
@pytest.mark.parametrize("drafting", ["greedy", "probabilistic"])
def test_a_whole_step_reads_nothing_on_the_host(drafting, tree):
    target = random_target(dtype=torch.float32, device="meta")
    drafter = speculator(target, drafting, tree)
    sampling = Sampling(temperature=0.8, frequency_penalty=0.1, bias={2: 1.0})
    loop = new_loop(target, drafter, 3, sampling=sampling)
    for _ in range(2):
        admitted = loop.propose()
        assert loop.advance(admitted, loop.score(admitted.draft)).is_meta
        assert admitted.draft.tokens.shape == (3, 3)


@FORMS
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_replayed_steps_draft_the_same(captures, sampling, tree):
    check_drafts_from_graphs(captures, lambda target: speculator(target, tree=tree), sampling)


def test_a_draft_without_a_start_says_what_is_missing(target):
    context = Context(torch.tensor([[1]]), torch.tensor([1]), torch.tensor([1]))
    with pytest.raises(ValueError, match="call start and observe"):
        speculator(target).propose(context, 2, GREEDY, None)


@pytest.mark.parametrize(
    ("rule", "drafting"),
    [("match", "greedy"), ("reject", "probabilistic"), ("block", "probabilistic")],
)
@pytest.mark.parametrize(("vocab_size", "kept", "k"), [(2, [0, 1], 2), (3, [0, 2], 1)])
def test_the_law_of_the_text_is_the_targets(rule, drafting, vocab_size, kept, k):
    """Enumerated over two steps; in the second case token 1 can never be drafted."""
    target, max_new = random_target(4, vocab_size), k + 1
    drafter = speculator(target, drafting, kept=kept, num_stages=2)
    got = whole_law(target, drafter, k, rule, max_new)

    def law(context):
        return logits_behind(target, context)[0].softmax(-1).tolist()

    assert total_variation(got, sequence_law(law, (0, 1), max_new)) < 1e-12


@pytest.mark.parametrize(("rule", "drafting"), [("match", "greedy"), ("reject", "probabilistic")])
def test_the_law_of_a_text_from_trees_is_the_targets(rule, drafting):
    """Enumerated over two steps; token 1 can never be drafted."""
    target = random_target(4, 3)
    stages, vocab = stages_for(target, [0, 2], num_stages=2)
    shape = {"tree": True, "width": 2, "depth": 2, "branching": (2,)}
    drafter = MLPSpeculator(target, stages, drafting, vocab=vocab, **shape)
    got = whole_law(target, drafter, 2, rule, 3)

    def law(context):
        return logits_behind(target, context)[0].softmax(-1).tolist()

    assert total_variation(got, sequence_law(law, (0, 1), 3)) < 1e-12


# --- weights --------------------------------------------------------------------------------------


def saved(path, target, storage="float16", **metadata):
    stages, vocab = stages_for(target)
    tensors = trained_state(stages) | {"draft_to_target": vocab.draft_to_target}
    sizes = {"num_stages": "3", "width": "24"}
    described = {"method": METHOD, **describe_target(target), **sizes, **metadata}
    save_weights(path, tensors, described, storage)
    return stages


@pytest.mark.parametrize(("storage", "error"), [("float16", 1e-2), ("int8", 5e-2)])
def test_weights_come_back(tmp_path, storage, error, whole_products):
    target = random_target(dtype=torch.float32)
    stages = saved(tmp_path / "w.safetensors", target, storage)
    drafter = MLPSpeculator(target, tmp_path / "w.safetensors")
    assert drafter.vocab.draft_to_target.tolist() == KEPT
    carried = stages.stage(0, stages.first(torch.ones(2, 32)), torch.tensor([3, 4]))
    again = drafter.stages.stage(0, drafter.stages.first(torch.ones(2, 32)), torch.tensor([3, 4]))
    torch.testing.assert_close(again, carried, atol=error, rtol=0)
    tensors, metadata = read_weights(tmp_path / "w.safetensors")
    assert metadata["storage"] == storage
    assert not any("embedding" in name or name == "head.weight" for name in tensors)


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_a_drafter_says_what_it_took_to_have_it(tmp_path, storage):
    target, path = random_target(dtype=torch.float32), tmp_path / "w.safetensors"
    stages = saved(path, target, storage, tokens="3000", places="9000", minutes="1.5")
    card = MLPSpeculator(target, path).card
    assert card["parameters"] == sum(value.numel() for value in trained_state(stages).values())
    assert card["megabytes"] == path.stat().st_size / 1e6
    numbers = [card[word] for word in ("training_tokens", "tokens_seen", "training_minutes")]
    assert numbers == [3000, 9000, 1.5]
    saved(path, target)
    assert MLPSpeculator(target, path).card["training_minutes"] is None  # as an older file
    assert speculator(target).card == {}


def test_load_proposer_finds_weights_by_name(tmp_path, monkeypatch):
    target = random_target(dtype=torch.float32)
    monkeypatch.setattr("specdec_lab.proposers.weights.FOLDER", tmp_path)
    with pytest.raises(OSError, match=r"no trained weights.*specdec_lab train mlp_speculator"):
        load_proposer("mlp_speculator", target)
    saved(tmp_path / f"{METHOD}.safetensors", target)
    assert load_proposer("mlp_speculator", target).max_k == 3
    other = {"method": "mlp_speculator", "weights": str(tmp_path / f"{METHOD}.safetensors")}
    assert load_proposer({**other, "num_speculative_tokens": 2}, target).default_k == 2


def test_weights_for_another_shape_or_tokenizer_are_refused(tmp_path):
    target, path = random_target(dtype=torch.float32), tmp_path / "w.safetensors"
    saved(path, target)
    with pytest.raises(ValueError, match="vocab_size is 32 there and 40 here"):
        MLPSpeculator(random_target(vocab_size=40, dtype=torch.float32), path)
    saved(path, target, tokenizer_hash="another")
    target.tokenizer = type("Words", (), {"get_vocab": lambda self: {"a": 0}})()
    with pytest.raises(ValueError, match="tokenizer_hash is another there"):
        MLPSpeculator(target, path)
    saved(path, target, method="eagle")
    with pytest.raises(ValueError, match="holds weights for eagle"):
        MLPSpeculator(target, path)
    saved(path, target, width="20")
    with pytest.raises(ValueError, match="The weights do not fit"):
        MLPSpeculator(target, path)


def test_weights_for_another_model_of_that_shape_only_warn(tmp_path):
    saved(tmp_path / "w.safetensors", random_target(dtype=torch.float32))
    other = random_target(1, dtype=torch.float32)
    with pytest.warns(RuntimeWarning, match="trained for random, another model"):
        drafter = MLPSpeculator(other, tmp_path / "w.safetensors")
    got = generate(other, PROMPTS, drafter, max_new_tokens=12)
    assert got.tokens == generate(other, PROMPTS, max_new_tokens=12).tokens


def test_a_damaged_file_says_so(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"no weights")
    with pytest.raises(OSError, match="can't be read"):
        MLPSpeculator(random_target(), tmp_path / "w.safetensors")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_20_a_target_of_another_precision(tmp_path, dtype):
    saved(tmp_path / "w.safetensors", random_target(dtype=torch.float32))
    target = random_target(dtype=dtype)
    drafter = MLPSpeculator(target, tmp_path / "w.safetensors")
    for sampling in (GREEDY, WARM):
        got = generate(target, PROMPTS, drafter, sampling=sampling, seed=1, max_new_tokens=8)
        assert [len(tokens) for tokens in got.tokens] == [8, 8, 8]


@FORMS
@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_an_mlp_speculator_on_cuda(sampling, captured, tree):
    target = random_target(dtype=torch.float32, device="cuda", graphs=captured)
    drafter = speculator(target, tree=tree)
    got = generate(target, PROMPTS, drafter, sampling=sampling, max_new_tokens=20)
    assert [len(tokens) for tokens in got.tokens] == [20, 20, 20]
