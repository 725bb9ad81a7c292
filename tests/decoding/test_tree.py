"""Trees as tensors, their forward, the cache along the accepted path, the door, and the records.

pytest tests/decoding/test_tree.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.admit import Admitted, admit
from specdec_lab.decoding.decode import Loop, generate
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context, Draft, RowStep, Scores
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling, history_of
from specdec_lab.decoding.trace import Trace
from specdec_lab.decoding.tree import ancestors, chain_parents, depths, path_to, prune
from specdec_lab.decoding.verify import match, reject
from toys import PLAIN, Scripted, ToyTarget, ToyTree, paths, random_law, random_target

BUSHY = (-1, -1, 0, 0, 1, 2)


@st.composite
def forests(draw):
    """Parents (B, N) of a few random trees of one size."""
    size = draw(st.integers(0, 9))
    rows = draw(st.integers(1, 3))
    return [[draw(st.integers(-1, i - 1)) for i in range(size)] for _ in range(rows)]


def tensor(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.long).view(len(rows), -1)


@settings(max_examples=40, deadline=None)
@given(forests())
def test_ancestors_depths_and_paths_are_those_of_a_walk_upwards(rows):
    seen = ancestors(tensor(rows))
    for b, parents in enumerate(rows):
        walks = paths((-1,), range(len(parents)), parents)  # node numbers, the root is -1
        for entry, walk in enumerate(walks):
            assert {j - 1 for j in seen[b, entry].nonzero().flatten().tolist()} == set(walk)
            assert depths(seen)[b, entry] == len(walk) - 1
            found = path_to(seen[b : b + 1], torch.tensor([entry]))[0]
            assert found[: len(walk) - 1].tolist() == list(walk[1:])


@settings(max_examples=40, deadline=None)
@given(forests(), st.randoms(use_true_random=False))
def test_pruning_keeps_the_paths_of_what_is_live(rows, random):
    parents = tensor(rows)
    tokens = torch.arange(parents.numel()).view(parents.shape)
    live = torch.tensor([[random.random() < 0.6 for _ in row] for row in rows], dtype=torch.bool)
    live = live.view(parents.shape)
    live = ~(ancestors(parents)[:, 1:, 1:] & ~live[:, None]).any(-1)
    probs = tokens[..., None].double()
    got = prune(Draft(tokens, live.sum(1), parents, probs), live)
    for b, row in enumerate(rows):
        count = int(got.count[b])
        walks = paths((), tokens[b].tolist(), row)
        want = [w for w, kept in zip(walks[1:], live[b].tolist(), strict=True) if kept]
        kept = got.tokens[b, :count].tolist()
        assert paths((), kept, got.parents[b, :count].tolist())[1:] == want
        assert got.probs[b, :count, 0].tolist() == kept


def tree_draft(tokens, parents=BUSHY, count=None) -> Draft:
    counts = torch.full((len(tokens),), len(tokens[0])) if count is None else torch.tensor(count)
    rows = tensor([parents] * len(tokens)) if isinstance(parents[0], int) else tensor(parents)
    return Draft(tensor(tokens), counts, parents=rows)


def start(target, texts):
    """A cache that has read all but the last token of each text."""
    cache = target.start(len(texts), 40)
    width = max(map(len, texts))
    counts = torch.tensor([len(text) - 1 for text in texts])
    target.prefill(cache, tensor([t[:-1] + [0] * (width - len(t)) for t in texts]), counts)
    cache.settle(width)
    return cache, torch.tensor([text[-1] for text in texts])


def assert_close(got, want, atol=1e-9) -> None:
    torch.testing.assert_close(got, want, atol=atol, rtol=0)


def chain_scores(target, text):
    """Logits and states behind a whole text, read in one go."""
    cache, pending = start(target, [text])
    return target.score(cache, pending, Draft.empty(1), (1, 2))


def test_every_node_sees_its_own_path_and_nothing_else():
    """Rows of a batch have other lengths and other trees; positions are those of the depth."""
    target = random_target(1)
    texts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
    trees = [list(BUSHY), [-1, 0, 1, 0, 3, -1], [-1, -1, -1, 2, 2, 4]]
    tokens = [[7, 8, 9, 7, 1, 2], [3, 3, 3, 3, 1, 0], [1, 2, 3, 4, 5, 6]]
    cache, pending = start(target, texts)
    draft = tree_draft(tokens, trees, count=[6, 6, 4])
    scores = target.score(cache, pending, draft, (1, 2))
    assert cache.lengths.tolist() == [4, 1, 2]
    for b, (text, row, parents) in enumerate(zip(texts, tokens, trees, strict=True)):
        real = paths(tuple(text), row, parents)[: int(draft.count[b]) + 1]
        for entry, whole in enumerate(real):
            want = chain_scores(target, list(whole))
            assert_close(scores.logits[b, entry], want.logits[0, 0])
            for layer in (1, 2):
                assert_close(scores.hidden[layer][b, entry], want.hidden[layer][0, 0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_chain_with_parents_scores_as_one_without(dtype):
    target = random_target(2, dtype=dtype)
    cache, pending = start(target, [[1, 2, 3], [4, 5]])
    chain = Draft(tensor([[6, 7, 8], [9, 1, 2]]), torch.tensor([3, 2]))
    plain = target.score(cache, pending, chain).logits
    as_tree = Draft(chain.tokens, chain.count, parents=chain_parents(2, 3))
    tree = target.score(cache, pending, as_tree).logits
    for b, count in enumerate([3, 2]):
        assert_close(tree[b, : count + 1], plain[b, : count + 1], atol=1e-6)


def test_24_the_kept_entries_are_those_of_the_path():
    """Nodes 0..5 behind the pending one; the path is 0, 3 here and 1, 4 there, not 0, 1."""
    target = random_target(3)
    texts, tokens = [[3, 1, 4], [1, 5]], [[7, 8, 9, 6, 1, 2], [2, 6, 5, 3, 5, 8]]
    cache, pending = start(target, texts)
    target.score(cache, pending, tree_draft(tokens))
    target.keep(cache, tensor([[0, 3, 5, 5, 5, 5], [1, 4, 5, 5, 5, 5]]), torch.tensor([3, 3]))
    kept = [[3, 1, 4, 7, 6, 11], [1, 5, 6, 5, 11]]
    got = target.score(cache, torch.tensor([11, 11]), Draft.empty(2)).logits
    for b, text in enumerate(kept):
        assert_close(got[b], chain_scores(target, text).logits[0])


@torch.no_grad()
def test_nodes_may_be_read_level_by_level():
    """What a drafter does: earlier nodes stay written behind the lengths, and are seen."""
    target = random_target(4)
    cache, pending = start(target, [[1, 2, 3]])
    draft = tree_draft([[4, 5, 6, 7, 8, 9]])
    whole = target.score(cache, pending, draft).logits
    seen = ancestors(draft.parents)
    nodes = torch.cat((pending[:, None], draft.tokens), 1)
    for first, last in ((0, 1), (1, 3), (3, 6), (6, 7)):
        states, _ = target.model(nodes[:, first:last], cache, (), seen[:, first:last, :last])
        logits = target.model.head(states)
        assert_close(logits, whole[:, first:last])


class RankedTree:
    """Drafts the ranked continuations of a real target, so that paths of every shape are kept."""

    hidden_layers = (1, 2)

    def __init__(self, target, parents, ranks):
        self.target, self.parents, self.ranks = target, parents, ranks

    def start(self, batch_size, max_length):
        self.tokens, self.states = [[] for _ in range(batch_size)], [[] for _ in range(batch_size)]

    def observe(self, tokens, counts, hidden):
        for b, count in enumerate(counts.tolist()):
            self.tokens[b] += tokens[b, :count].tolist()
            self.states[b].append(hidden[1][b, :count])

    def propose(self, context, k, sampling, randomness):
        rows = []
        for row, length in zip(context.tokens.tolist(), context.lengths.tolist(), strict=True):
            texts = [row[:length]]
            for parent, rank in zip(self.parents, self.ranks, strict=True):
                logits = chain_scores(self.target, texts[parent + 1]).logits[0, 0]
                texts.append([*texts[parent + 1], int(logits.topk(rank + 1).indices[rank])])
            rows.append([text[-1] for text in texts[1:]])
        return tree_draft(rows, self.parents)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8)], ids=["greedy", "t"])
def test_a_tree_writes_the_text_of_plain_decoding(sampling):
    """With the true path among the siblings, and observers told of exactly what was kept."""
    target = random_target(5, vocab_size=12)
    prompts = [[1, 2, 3], [4], [7, 7]]
    asked = {"sampling": sampling, "seed": 3, "max_new_tokens": 9}
    plain = generate(target, prompts, **asked)
    drafter = RankedTree(target, (-1, -1, 1, 1, 2, 3), (1, 0, 1, 0, 0, 0))
    tree = generate(target, prompts, drafter, k=6, **asked)
    assert tree.tokens == plain.tokens
    for b, prompt in enumerate(prompts):
        text = [*prompt, *plain.tokens[b]]
        assert drafter.tokens[b] == text[:-1]
        states = torch.cat(drafter.states[b])
        for place in range(len(text) - 1):
            true = chain_scores(target, text[: place + 1]).hidden[1][0, 0]
            assert_close(states[place], true)
    if sampling.is_greedy:
        assert tree.trace.tau > 2


def test_a_chain_given_with_parents_writes_the_same_text():
    """In every rule; the coins are those of the chain too."""
    target = random_target(6, vocab_size=8)
    law = random_law(1, 8)
    for rule, how in (("match", "top"), ("reject", "apart")):
        drafter = ToyTree(law, [(-1, 0, 1)], how, tell_law=rule == "reject")

        class Chain:
            def propose(self, *asked, drafter=drafter):
                draft = drafter.propose(*asked)
                return Draft(draft.tokens, draft.count, probs=draft.probs)

        asked = {"k": 3, "sampling": PLAIN, "seed": 9, "max_new_tokens": 20, "verify": rule}
        runs = [generate(target, [[1, 2], [3]], d, **asked) for d in (drafter, Chain())]
        assert runs[0].tokens == runs[1].tokens
        steps = [[(s.drafted, s.num_accepted) for s in run.trace.steps] for run in runs]
        assert steps[0] == steps[1]
        for name in ("alpha", "alpha_by_position", "acceptance_by_position", "tau"):
            assert getattr(runs[0].trace, name) == getattr(runs[1].trace, name)


@pytest.mark.parametrize("rule", [match, reject])
def test_rows_with_different_trees_are_judged_alone(rule):
    torch.manual_seed(2)
    parents = [list(BUSHY), [-1, 0, 1, 2, 3, 4], [-1, -1, -1, 0, 0, 0], [-1, 0, 0, -1, 1, 3]]
    logits = torch.randn(4, 7, 3, dtype=torch.float64)
    probs = torch.randn(4, 6, 3, dtype=torch.float64).softmax(-1) if rule is reject else None
    lengths = torch.tensor([3, 5, 2, 4])
    context = Context(torch.zeros(4, 6, dtype=torch.long), lengths, lengths)
    draft = Draft(torch.randint(3, (4, 6)), torch.tensor([6, 5, 6, 4]), tensor(parents), probs)
    deepest = 0
    for trial in range(10):
        seeds = [trial + b for b in range(4)]
        whole = rule(context, draft, Scores(logits), PLAIN, CounterRandomness(seeds))
        for b, seed in enumerate(seeds):
            row = slice(b, b + 1)
            one = Context(context.tokens[row], lengths[row], lengths[row])
            law = None if probs is None else probs[row]
            alone = Draft(draft.tokens[row], draft.count[row], draft.parents[row], law)
            verdict = rule(one, alone, Scores(logits[row]), PLAIN, CounterRandomness([seed]))
            count = int(verdict.num_accepted)
            deepest = max(deepest, count)
            assert count == whole.num_accepted[b]
            assert verdict.path[0, :count].tolist() == whole.path[b, :count].tolist()
            assert verdict.next_token[0] == whole.next_token[b]
            path = [-1, *verdict.path[0, :count].tolist()]
            assert [parents[b][node] for node in path[1:]] == path[:-1]
    assert deepest > 1


def admitted(draft, room=(9,), eos=(), vocab_size=10, k=6) -> Admitted:
    return admit(draft, k, torch.tensor(room), vocab_size, torch.tensor(eos, dtype=torch.long))


def test_the_door_cuts_what_is_too_deep_and_what_lies_behind_an_end_token():
    """Tokens 0..5 on the tree 0(2(5) 3) 1(4)."""
    tokens = [[0, 1, 2, 3, 4, 5]]
    shallow = admitted(tree_draft(tokens), room=(1,)).draft
    assert (shallow.tokens.tolist(), shallow.parents.tolist()) == ([[0, 1]], [[-1, -1]])
    ended = admitted(tree_draft(tokens), eos=(0,)).draft
    assert (ended.tokens.tolist(), ended.parents.tolist()) == ([[0, 1, 4]], [[-1, -1, 1]])
    leaf = admitted(tree_draft(tokens), eos=(2,)).draft
    assert leaf.tokens.tolist() == [[0, 1, 2, 3, 4]]
    nothing = admitted(tree_draft(tokens), room=(0,)).draft
    assert nothing.tokens.shape == nothing.parents.shape == (1, 0)


def test_the_door_cuts_rows_of_a_batch_apart():
    both = admitted(tree_draft([[0, 1, 2, 3, 4, 5]] * 2), room=(9, 2), eos=(1,)).draft
    assert both.count.tolist() == [5, 4]
    assert both.tokens[0].tolist() == [0, 1, 2, 3, 5]
    assert both.parents[0].tolist() == [-1, -1, 0, 0, 2]
    assert both.tokens[1, :4].tolist() == [0, 1, 2, 3]


def test_the_door_names_what_is_no_tree():
    good = tree_draft([[0, 1, 2]], (-1, 0, 7), count=[2])
    assert admitted(good).fault.tolist() == [0]  # what is not meant is not looked at
    for parents in ((-1, 1, 0), (-2, 0, 0), (-1, 2, 0)):
        assert admitted(tree_draft([[0, 1, 2]], parents)).fault.tolist() == [Admitted.NO_TREE]
    with pytest.raises(ValueError, match="parents must be"):
        admitted(Draft(tensor([[1, 2]]), torch.tensor([2]), parents=tensor([[-1]])))
    foreign = tree_draft([[0, 1, 99]], (-1, -1, 0))
    assert admitted(foreign).fault.tolist() == [Admitted.FOREIGN]
    assert admitted(foreign, room=(1,)).fault.tolist() == [0]


def test_a_law_that_is_none_ends_the_tree_there():
    probs = torch.full((1, 4, 4), 0.25)
    probs[0, 2, 0] = torch.nan
    draft = Draft(tensor([[0, 1, 2, 3]]), torch.tensor([4]), tensor([[-1, -1, 0, 1]]), probs)
    found = admitted(draft)
    assert found.fault.tolist() == [Admitted.NO_LAW]
    assert found.draft.tokens.tolist() == [[0, 1]]
    assert found.draft.probs.shape == (1, 2, 4)


def test_the_loop_says_what_is_wrong_with_a_tree():
    class Knot(Scripted):
        def propose(self, *asked):
            return tree_draft([[1, 2]], (1, 0))

    target = ToyTarget(random_law(1, 4), 4)
    with pytest.raises(ValueError, match="parents are no tree"):
        generate(target, [[0]], Knot(None), k=2)
    law = random_law(2, 4)
    with pytest.raises(ValueError, match="block judges chains"):
        generate(target, [[0]], ToyTree(law, [(-1, -1)]), k=2, sampling=PLAIN, verify="block")


def test_penalties_count_the_path_and_not_the_siblings():
    context = Context(tensor([[1, 2]]), torch.tensor([2]), torch.tensor([1]))
    draft = tree_draft([[3, 3, 3, 0]], (-1, -1, 0, 1))
    history = history_of(Sampling(presence_penalty=1.0), context, draft, 4)
    assert history.output[0, :, 3].tolist() == [0, 1, 1, 2, 1]
    assert history.total[0, 4].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("rule", ["match", "reject"])
def test_a_whole_step_on_meta_reads_nothing(rule):
    target = random_target(dtype=torch.float32, device="meta")

    class OnMeta:
        hidden_layers = (0, 2)

        def propose(self, context, k, sampling, randomness):
            probs = None if rule == "match" else torch.zeros(2, 3, 32, device="meta")
            nodes = torch.zeros(2, 3, dtype=torch.long, device="meta")
            return Draft(nodes, nodes[:, 0], nodes, probs)

        def observe(self, tokens, counts, hidden):
            self.seen = tokens.shape, {layer: h.shape for layer, h in hidden.items()}

    sampling = Sampling(temperature=0.8, top_p=0.9, frequency_penalty=0.1)
    asked = Request.checked(target, [[1, 2], [3]], OnMeta(), 3, sampling, rule, 9, None)
    loop = Loop(target, asked, CounterRandomness([1, 2], "meta"))
    for _ in range(2):
        step = loop.propose()
        report = loop.advance(step, loop.score(step.draft))
        assert report.is_meta
        assert report.shape == (2, 4 * 3 + 7)
    assert asked.proposer.seen == ((2, 4), {0: (2, 4, 32), 2: (2, 4, 32)})


def step_of(path, parents, more=True, tokens=None) -> RowStep:
    num_written = len(path) + more if tokens is None else tokens
    return RowStep([5] * len(parents), [5] * num_written, len(path), 0.0, list(parents), list(path))


def test_a_tree_is_counted_by_depth():
    """Two levels of 0(2(5) 3) 1(4): accepted to a leaf, refused below node 0, refused at once."""
    steps = [step_of([1, 4], BUSHY), step_of([0], BUSHY), step_of([], BUSHY)]
    assert [step.was_refused for step in steps] == [False, True, True]
    assert [step.kinds[-1] for step in steps] == ["bonus", "recovered", "recovered"]
    trace = Trace([steps])
    assert (trace.num_drafted, trace.num_accepted, trace.num_rejected) == (18, 3, 2)
    assert trace.alpha == 3 / 5
    assert trace.draft_acceptance_rate == 3 / 18
    assert trace.acceptance_by_position == [2 / 3, 1 / 3, 0]
    assert trace.alpha_by_position == [2 / 3, 1 / 2, None]
    assert trace.tau == 2


def test_a_cut_inside_the_accepted_path_leaves_nothing_deeper():
    cut = step_of([0, 2, 5], BUSHY, tokens=2).before_cut()
    assert (cut.num_accepted, cut.path, cut.parents) == (2, [0, 2], [-1, -1, 0, 0, 1])
    assert not cut.was_refused
    assert step_of([0, 2], BUSHY).before_cut() == step_of([0, 2], BUSHY)


def test_counters_follow_the_cut_in_a_tree():
    """31 for trees: the end token is accepted inside the draft, and nothing behind it counts."""
    law = {1: 3, 2: 9}
    target = ToyTarget(lambda c: [float(i == law.get(len(c), 0)) for i in range(10)], 10, (9,))

    class Known(Scripted):
        def propose(self, *asked):
            return tree_draft([[1, 3, 9, 4, 5]], (-1, -1, 1, 1, 2))

    got = generate(target, [[0]], Known(None), k=5, max_new_tokens=20)
    assert got.tokens == [[3, 9]]
    assert got.finish_reasons == ["eos"]
    assert got.trace.steps[0].kinds == ["accepted", "accepted"]
    assert got.trace.num_drafted == 4  # node 4 was cut at the door
    assert got.trace.steps[0].path == [1, 2]
