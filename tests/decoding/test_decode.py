"""The loop: ends, budgets, batches, seeds, stops and readers, each right in one place.

pytest tests/decoding/test_decode.py
"""

import itertools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.decode import Loop, generate, stream
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from toys import Scripted, ToyDrafter, ToyTarget, random_law, random_target

WARM = Sampling(temperature=1.0)


def says(*script: int, then: int = 0, vocab_size: int = 10, eos: tuple[int, ...] = ()) -> ToyTarget:
    """A target that, after a prompt of one token, says the script word for word."""

    def law(context: tuple[int, ...]) -> list[float]:
        place = len(context) - 1
        token = script[place] if place < len(script) else then
        return [float(token == i) for i in range(vocab_size)]

    return ToyTarget(law, vocab_size, eos)


def oracle(*script: int) -> Scripted:
    """A proposer that knows the script that follows a prompt of one token."""
    return Scripted(lambda seen: list(script[len(seen) - 1 :]))


def wrong(vocab_size: int) -> Scripted:
    """A proposer that drafts the same token over and over."""
    return Scripted(lambda seen: [vocab_size - 1] * 8)


# --- what is emitted -----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_08_prompt_of_one_token_equals_plain_and_positions_have_no_gap(k):
    target = random_target()
    plain = generate(target, [[3]], max_new_tokens=30)
    truth = [3, *plain.tokens[0]]
    perfect = Scripted(lambda seen: truth[len(seen) :])
    half = Scripted(lambda seen: [*truth[len(seen) : len(seen) + 2], 31, 31, 31])
    for proposer in (perfect, half, wrong(32)):
        assert generate(target, [[3]], proposer, k=k, max_new_tokens=30).tokens == plain.tokens


def test_09_the_first_draft_is_judged_by_the_row_before_it():
    target = ToyTarget(lambda c: [0, 0, 1, 0] if c == (1, 1, 1) else [0, 1, 0, 0], 4)
    assert generate(target, [[1, 1, 1]], Scripted(lambda s: [1]), k=1, max_new_tokens=1).tokens == [
        [2]
    ]
    given_ = generate(target, [[1, 1, 1]], Scripted(lambda s: [1]), k=1, max_new_tokens=4)
    assert given_.tokens == generate(target, [[1, 1, 1]], max_new_tokens=4).tokens


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("k", [1, 2, 4])
def test_14_an_end_token_ends_the_text_wherever_it_stands(place, k):
    """As first or last draft, as the recovered and as the bonus token."""
    script = [5, 6, 7, 5, 6, 7]
    script[place] = 9
    target = says(*script, eos=(9,))
    for proposer in (oracle(*script), oracle(*script[:-1], 0), wrong(9), None):
        got = generate(target, [[1]], proposer, k=k, max_new_tokens=20)
        assert got.tokens == [script[: place + 1]]
        assert got.finish_reasons == ["eos"]
        steps = stream(target, [[1]], proposer, k=k, max_new_tokens=20)
        assert [t for s in steps for t in s.rows[0].tokens] == script[: place + 1]


@pytest.mark.parametrize("eos", [(), (2,), (2, 7)])
def test_13_end_tokens_may_be_none_one_or_several(eos):
    target = says(3, 4, 7, 2, 5, eos=eos)
    got = generate(target, [[1]], oracle(3, 4, 7, 2, 5), k=4, max_new_tokens=5).tokens[0]
    assert got == {(): [3, 4, 7, 2, 5], (2,): [3, 4, 7, 2], (2, 7): [3, 4, 7]}[eos]


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_15_never_more_than_the_budget(budget):
    script = list(range(1, 9))
    proposer = oracle(*script)
    got = generate(says(*script), [[0]], proposer, k=5, max_new_tokens=budget)
    assert got.tokens == [script[:budget]]
    assert got.finish_reasons == ["length"]
    assert got.trace.num_drafted == budget - 1  # the last token is never drafted


def test_15_an_empty_proposal_is_a_normal_value():
    silent = Scripted(lambda seen: [])
    got = generate(says(4, 5, 6), [[1]], silent, k=3, max_new_tokens=3)
    assert got.tokens == [[4, 5, 6]]
    assert got.trace.draft_coverage == 0
    assert got.trace.alpha is None


def test_the_context_limit_ends_a_row():
    target = random_target(max_context=12)
    for proposer in (None, wrong(32)):
        got = generate(target, [[1] * 9, [2]], proposer, k=6, max_new_tokens=50)
        assert [len(t) for t in got.tokens] == [3, 11]
        assert got.finish_reasons == ["length", "length"]


def test_16_k_is_what_was_asked_and_zero_is_plain_decoding():
    for k in (0, 1, 4, 8):
        proposer = oracle(*range(1, 9))
        got = generate(says(*range(1, 9)), [[0]], proposer, k=k, max_new_tokens=8)
        assert set(proposer.asked) <= {k}
        assert got.tokens == [list(range(1, 9))]
        assert (got.trace.alpha is None) == (k == 0)
    assert got.trace.tau == 8


def test_16_an_explicit_k_wins_over_the_proposers_own():
    proposer = oracle(1, 2, 3, 4)
    proposer.default_k = 2
    generate(says(1, 2, 3, 4), [[0]], proposer, max_new_tokens=4)
    generate(says(1, 2, 3, 4), [[0]], proposer, k=3, max_new_tokens=4)
    assert proposer.asked == [2, 2, 3]


# --- batches -------------------------------------------------------------------------------------


def test_23_rows_that_accept_0_2_and_4_equal_their_own_runs():
    target = random_target(3)
    prompts = [[1], [4, 5, 6, 7], [2, 3], [9] * 11]
    plain = [generate(target, [p], max_new_tokens=12).tokens[0] for p in prompts]
    truth = {tuple(p): [*p, *t] for p, t in zip(prompts, plain, strict=True)}

    def script(seen: list[int]) -> list[int]:
        start = next(p for p in truth if tuple(seen[: len(p)]) == p)
        good = {(1,): 0, (4, 5, 6, 7): 2, (2, 3): 4}.get(start)
        if good is None:
            return []
        ahead = [*truth[start][len(seen) :], 0, 0, 0, 0][:4]
        return [*ahead[:good], *[(token + 1) % 32 for token in ahead[good:]]]

    got = generate(target, prompts, Scripted(script), k=4, max_new_tokens=12)
    assert got.tokens == plain
    first = [row[0].num_accepted for row in got.trace.rows]
    assert first == [0, 2, 4, 0]
    order = [2, 0, 3, 1]
    shuffled = generate(
        target, [prompts[i] for i in order], Scripted(script), k=4, max_new_tokens=12
    )
    assert shuffled.tokens == [plain[i] for i in order]
    for i, prompt in enumerate(prompts):
        alone = generate(target, [prompt], Scripted(script), k=4, max_new_tokens=12)
        assert alone.trace.rows[0] == [
            type(a)(b.drafted, b.tokens, b.num_accepted, a.at)
            for a, b in zip(alone.trace.rows[0], got.trace.rows[i], strict=True)
        ]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 31), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
        unique_by=tuple,
    ),
    st.integers(0, 6),
    st.integers(1, 14),
    st.integers(0, 10**9),
    st.sampled_from([Sampling(), WARM, Sampling(temperature=0.7, top_p=0.8, presence_penalty=0.5)]),
)
def test_matching_equals_plain_decoding_with_the_same_seed(prompts, k, budget, seed, sampling):
    """Strings: greedy with every proposer, and `match` with a seed at any temperature."""
    target = random_target(1, eos_ids=(5,))
    guess = Scripted(lambda seen: [(sum(seen) * 7 + i) % 32 for i in range(k)])
    how = {"sampling": sampling, "max_new_tokens": budget}
    seeds = [seed + i for i in range(len(prompts))]
    plain = [
        generate(target, [p], seed=s, **how).tokens[0] for p, s in zip(prompts, seeds, strict=True)
    ]
    assert generate(target, prompts, guess, k=k, seed=seeds, **how).tokens == plain
    known = {tuple(p): [*p, *t] for p, t in zip(prompts, plain, strict=True)}

    def half_right(seen: list[int]) -> list[int]:
        line = next(v for v in known.values() if v[: len(seen)] == seen)
        return [*line[len(seen) : len(seen) + 3], 1, 2]

    assert generate(target, prompts, Scripted(half_right), k=k, seed=seeds, **how).tokens == plain


def test_a_row_of_a_sampled_batch_equals_the_same_prompt_alone_under_every_rule():
    target = ToyTarget(random_law(1, 6), 6, eos_ids=(5,))
    drafter = ToyDrafter(random_law(2, 6))
    prompts, seeds = [[0], [1, 2, 3], [4, 4]], [11, 12, 13]
    for rule in ("match", "reject", "block"):
        how = {"k": 3, "sampling": WARM, "verify": rule, "max_new_tokens": 10}
        whole = generate(target, prompts, drafter, seed=seeds, **how)
        for prompt, seed, tokens in zip(prompts, seeds, whole.tokens, strict=True):
            assert generate(target, [prompt], drafter, seed=seed, **how).tokens == [tokens]


# --- seeds and state -----------------------------------------------------------------------------


def test_29_a_seeded_row_is_constant_beside_an_unseeded_one():
    target = ToyTarget(random_law(4, 8), 8)
    runs = [
        generate(target, [[1], [1]], sampling=WARM, seed=[42, None], max_new_tokens=12).tokens
        for _ in range(3)
    ]
    alone = generate(target, [[1]], sampling=WARM, seed=42, max_new_tokens=12).tokens[0]
    assert [run[0] for run in runs] == [alone] * 3
    assert len({tuple(run[1]) for run in runs}) > 1


def test_29_unseeded_runs_differ_and_the_global_generator_stays():
    target = ToyTarget(random_law(4, 8), 8)
    before = torch.random.get_rng_state()
    texts = {
        tuple(generate(target, [[1]], sampling=WARM, max_new_tokens=8).tokens[0]) for _ in range(20)
    }
    assert len(texts) > 1
    assert torch.equal(torch.random.get_rng_state(), before)


def test_25_no_state_survives_a_call():
    target = random_target(2)
    from specdec_lab.proposers.ngram import NGram

    proposer = NGram()
    first = generate(target, [[1, 2, 1, 2]], proposer, k=3, max_new_tokens=15)
    generate(target, [[7] * 9], proposer, k=5, max_new_tokens=4)
    broken = Scripted(lambda seen: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(target, [[1, 2]], broken, k=2, max_new_tokens=4)
    again = generate(target, [[1, 2, 1, 2]], proposer, k=3, max_new_tokens=15)
    assert first.tokens == again.tokens
    assert first.trace.num_drafted == again.trace.num_drafted


def test_streams_interleave_and_a_reader_may_leave():
    target = random_target(2)
    alone = generate(target, [[1, 2]], max_new_tokens=10).tokens[0]
    one = stream(target, [[1, 2]], max_new_tokens=10)
    other = stream(target, [[9]], wrong(32), k=3, max_new_tokens=10)
    read = []
    for step, _ in itertools.zip_longest(one, itertools.islice(other, 3)):
        read.extend(step.rows[0].tokens)
    other.close()
    assert read == alone


# --- stopping by text ----------------------------------------------------------------------------


def ends_with(*words: list[int]):
    """A stop rule on ids: cut behind the first word that is complete."""

    def rule(ids: list[int], new: int) -> int | None:
        for end in range(len(ids) - new + 1, len(ids) + 1):
            if any(ids[end - len(word) : end] == word for word in words if end >= len(word)):
                return end
        return None

    return rule


def test_26_one_cut_drives_tokens_stream_and_counters():
    script = [1, 8, 2, 3, 4, 5, 6, 7]
    target, stop = says(*script), ends_with([1, 8])
    for proposer in (oracle(*script), None):
        got = generate(target, [[0]], proposer, k=7, stop=stop, max_new_tokens=20)
        assert got.tokens == [[1, 8]]
        assert got.finish_reasons == ["stop"]
        assert got.trace.num_tokens == 2
    spoken = generate(target, [[0]], oracle(*script), k=7, stop=stop, max_new_tokens=20).trace
    assert (spoken.num_drafted, spoken.num_accepted, spoken.num_rejected) == (2, 2, 0)


def test_26_a_stop_across_two_steps_fires_and_other_rows_go_on():
    script = [1, 8, 2, 3, 4, 5]
    target, stop = says(*script), ends_with([2, 3])
    got = generate(target, [[0], [0]], oracle(*script), k=2, stop=stop, max_new_tokens=6)
    assert got.tokens == [[1, 8, 2, 3]] * 2
    mixed = generate(target, [[0], [9, 9]], None, stop=ends_with([1, 8]), max_new_tokens=4)
    assert mixed.tokens == [[1, 8], [8, 2, 3, 4]]
    assert mixed.finish_reasons == ["stop", "length"]


def test_28_the_stream_is_the_result_and_the_last_valid_token_is_fed_back():
    target = random_target(5)
    truth = [1, *generate(target, [[1]], max_new_tokens=12).tokens[0]]
    half = Scripted(lambda seen: [*truth[len(seen) : len(seen) + 1], 31])
    steps = list(stream(target, [[1]], half, k=2, max_new_tokens=12))
    assert [t for s in steps for t in s.rows[0].tokens] == truth[1:]
    assert steps[-1].finish_reasons == ["length"]


# --- what a proposer may hand over ---------------------------------------------------------------


class Hands:
    """A proposer that hands over what it is told to."""

    def __init__(self, draft) -> None:
        self.draft = draft

    def propose(self, context, k, sampling, randomness):
        return self.draft


def test_20_a_law_with_nan_is_dropped_with_a_warning_and_decoding_goes_on():
    probs = torch.tensor([[[0.5, 0.5, 0.0], [float("nan"), 0.5, 0.5]]])
    draft = Draft(torch.tensor([[0, 1]]), torch.tensor([2]), probs=probs)
    target = ToyTarget(random_law(0, 3), 3)
    with pytest.warns(RuntimeWarning, match="no law"):
        got = generate(target, [[0]], Hands(draft), k=2, sampling=WARM, seed=1, max_new_tokens=5)
    assert len(got.tokens[0]) == 5
    assert all(len(step.drafted) <= 1 for step in got.trace.steps)


def test_20_other_precisions_are_welcome():
    target = random_target(0, dtype=torch.float32)
    probs = torch.full((1, 2, 32), 1 / 32, dtype=torch.bfloat16)
    draft = Draft(torch.tensor([[3, 4]], dtype=torch.int32), torch.tensor([2]), probs=probs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = generate(target, [[0]], Hands(draft), k=2, sampling=WARM, seed=1, max_new_tokens=5)
    assert len(got.tokens[0]) == 5


@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        (None, "must return a Draft"),
        (Draft(torch.tensor([[1, 2, 3]]), torch.tensor([3])), "at most 2"),
        (Draft(torch.tensor([1]), torch.tensor([1])), "needs tokens"),
        (Draft(torch.tensor([[1]]), torch.tensor([[1]])), "needs tokens"),
        (Draft(torch.tensor([[1]]), torch.tensor([1]), probs=torch.ones(1, 2, 3)), "probs must be"),
        (Draft(torch.tensor([[99]]), torch.tensor([1])), "outside the target's vocabulary"),
        (Draft(torch.tensor([[-1]]), torch.tensor([1])), "outside the target's vocabulary"),
    ],
)
def test_a_malformed_draft_gets_one_sentence(draft, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(random_target(), [[0]], Hands(draft), k=2, max_new_tokens=5)


def test_rows_behind_the_count_are_never_looked_at():
    draft = Draft(torch.tensor([[7, 99, -3]]), torch.tensor([1]))
    got = generate(random_target(), [[0]], Hands(draft), k=3, max_new_tokens=6)
    assert got.tokens == generate(random_target(), [[0]], max_new_tokens=6).tokens


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompts": []}, "list of token-id lists"),
        ({"prompts": "text"}, "encode the text"),
        ({"prompts": [1, 2]}, r"wrap a single prompt as \[ids\]"),
        ({"prompts": torch.tensor([1, 2])}, r"wrap a single prompt as \[ids\]"),
        ({"prompts": [[]]}, "is empty"),
        ({"prompts": [[1] * 96]}, "shorten it"),
        ({"prompts": [[1, 32]]}, "outside the vocabulary"),
        ({"prompts": [[-1]]}, "outside the vocabulary"),
        ({"k": -1}, "k must be a whole number"),
        ({"k": 1.9}, "k must be a whole number"),
        ({"k": True}, "k must be a whole number"),
        ({"k": 10**6}, "from 0 to 64"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"verify": "typical"}, "verify must be"),
        ({"sampling": 0.7}, "must be a Sampling"),
        ({"sampling": Sampling(bias={99: 1.0})}, "bias names ids"),
        ({"proposer": "ngram"}, "is no proposer"),
        ({"seed": [1, 2]}, "give one each"),
    ],
)
def test_bad_input_is_refused_before_any_forward(change, sentence):
    target = random_target()
    forwards = []
    target.score = target.prefill = lambda *a, **kw: forwards.append(a)
    how = {"prompts": [[1, 2]], "proposer": wrong(32), "k": 2} | change
    for call in (generate, stream):
        with pytest.raises(ValueError, match=sentence) as caught:
            call(target, **how)
        assert "\n" not in str(caught.value)
    assert not forwards


def test_k_above_the_proposers_own_limit():
    proposer = wrong(32)
    proposer.max_k = 3
    with pytest.raises(ValueError, match="from 0 to 3"):
        generate(random_target(), [[1]], proposer, k=4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_get_one_sentence(value):
    target = ToyTarget(lambda c: [0.5, 0.5] if len(c) < 4 else [value, 0.5], 2)
    steps = stream(target, [[0, 0]], sampling=WARM, seed=0, max_new_tokens=9)
    assert [len(next(steps).rows[0].tokens) for _ in range(2)] == [1, 1]  # not lost
    with pytest.raises(ValueError, match="not finite after 2 tokens"):
        next(steps)


# --- the device side -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["match", "reject", "block"])
def test_a_whole_step_reads_nothing_on_the_host(rule):
    """With every tensor on device meta a hidden .item(), nonzero or data-dependent shape raises."""
    target = random_target(dtype=torch.float32, device="meta")
    shape = (2, 3, 32)

    class OnMeta:
        hidden_layers = (0, 2)

        def propose(self, context, k, sampling, randomness):
            probs = None if rule == "match" else torch.zeros(shape, device="meta")
            tokens = torch.zeros(shape[:2], dtype=torch.long, device="meta")
            return Draft(tokens, torch.zeros(2, dtype=torch.long, device="meta"), probs=probs)

        def observe(self, tokens, counts, hidden):
            self.seen = tokens.shape, {layer: h.shape for layer, h in hidden.items()}

    sampling = Sampling(temperature=0.8, top_p=0.9, frequency_penalty=0.1)
    asked = Request.checked(target, [[1, 2], [3]], OnMeta(), 3, sampling, rule, 9, None)
    loop = Loop(target, asked, CounterRandomness([1, 2], "meta"))
    for _ in range(2):
        admitted = loop.propose()
        report = loop.advance(admitted, loop.score(admitted.draft))
        assert report.is_meta
        assert report.shape == (2, 2 * 3 + 7)
    assert asked.proposer.seen == ((2, 4), {0: (2, 4, 32), 2: (2, 4, 32)})


def test_observe_gets_the_kept_path_and_the_true_states():
    """What the proposer has observed equals one forward over the committed text."""
    target = random_target(4)
    truth = [1, 2, 3, *generate(target, [[1, 2, 3]], max_new_tokens=12).tokens[0]]

    class Watcher(Scripted):
        hidden_layers = (1, 2)

        def start(self, batch_size, max_length):
            self.tokens, self.states = [], []

        def observe(self, tokens, counts, hidden):
            count = int(counts[0])
            self.tokens += tokens[0, :count].tolist()
            self.states.append(hidden[1][0, :count])

    watcher = Watcher(lambda seen: [*truth[len(seen) : len(seen) + 2], 31, 30])
    generate(target, [[1, 2, 3]], watcher, k=4, max_new_tokens=12)
    assert watcher.tokens == truth[:-1]  # everything but the pending token
    cache = target.start(1, 32)
    counts = torch.tensor([len(truth) - 1])
    states = target.prefill(cache, torch.tensor([truth[:-1]]), counts, (1,))[1][0]
    assert torch.allclose(torch.cat(watcher.states), states, atol=1e-12)
