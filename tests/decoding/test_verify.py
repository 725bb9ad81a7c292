"""The three rules on laws made by hand: known faults of others (CASES 1-7), boundaries, batches.

pytest tests/decoding/test_verify.py
"""

import math

import pytest
import torch

from specdec_lab.decoding.randomness import CounterRandomness, Lane, enumerate_law
from specdec_lab.decoding.records import Context, Draft, Scores
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.verify import RULES, block, choose_rule, laws, match, reject
from specdec_lab.study.broken_rules import fresh_draw_after_mismatch, residual_through_softmax
from specdec_lab.study.typical_acceptance import TypicalAcceptance

PLAIN = Sampling(temperature=1.0)
CONTEXT = Context(torch.tensor([[0]]), torch.tensor([1]), torch.tensor([1]))


def logs(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([rows], dtype=torch.float64).log()


def drafted(tokens: list[int], probs: list[list[float]] | None = None) -> Draft:
    q = None if probs is None else torch.tensor([probs], dtype=torch.float64)
    return Draft(torch.tensor([tokens]), torch.tensor([len(tokens)]), probs=q)


def first_token_law(rule, p, draws: list[tuple[float, Draft]], sampling=PLAIN) -> list[float]:
    """Law of the first token that a step commits, over the ways the draft came about."""
    total = [0.0] * len(p)
    scores = Scores(logs([p, p]))
    for weight, draft in draws:

        def first(randomness, draft=draft):
            verdict = rule(CONTEXT, draft, scores, sampling, randomness)
            accepted = int(verdict.num_accepted) > 0
            return (int(draft.tokens[0, 0] if accepted else verdict.next_token[0]),)

        for (token,), share in enumerate_law(first).items():
            total[token] += weight * share
    return total


def sampled(q: list[float]) -> list[tuple[float, Draft]]:
    return [(share, drafted([x], [q])) for x, share in enumerate(q) if share > 0]


def test_01_an_argmax_draft_must_be_judged_as_one_hot():
    p, soft = [0.5, 0.5], [0.9, 0.1]
    wrong = first_token_law(reject, p, [(1.0, drafted([0], [soft]))])
    assert wrong == pytest.approx([5 / 9, 4 / 9], abs=1e-12)
    for rule in (match, reject, block):
        right = first_token_law(rule, p, [(1.0, drafted([0]))])
        assert right == pytest.approx(p, abs=1e-12)


def test_02_q_must_be_the_tensor_that_was_drawn_from():
    p, raw = [0.4, 0.4, 0.2], [0.5, 0.3, 0.2]
    top_2 = [0.625, 0.375, 0.0]
    mislabelled = [(share, drafted([x], [raw])) for x, share in enumerate(top_2) if share]
    assert first_token_law(reject, p, mislabelled) == pytest.approx([0.5, 0.5, 0], abs=1e-12)
    assert first_token_law(reject, p, sampled(top_2)) == pytest.approx(p, abs=1e-12)


def test_02_drawn_in_bf16_and_scored_in_float32_is_biased():
    logits = torch.tensor([100.0, 100.24])
    coarse = logits.bfloat16().float().softmax(-1).tolist()
    fine = logits.softmax(-1).tolist()
    p = [0.5, 0.5]
    mixed = [(share, drafted([x], [fine])) for x, share in enumerate(coarse)]
    assert coarse == [0.5, 0.5]
    assert first_token_law(reject, p, mixed) == pytest.approx([0.553, 0.447], abs=1e-3)
    assert first_token_law(reject, p, sampled(fine)) == pytest.approx(p, abs=1e-7)


def test_03_the_residual_is_normalised_not_put_through_a_softmax():
    p, q = [0.5, 0.3, 0.2], [0.7, 0.2, 0.1]
    wrong = first_token_law(residual_through_softmax, p, sampled(q))
    assert wrong == pytest.approx([0.562, 0.269, 0.169], abs=1e-3)
    assert first_token_law(reject, p, sampled(q)) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize(
    ("sampling", "right"),
    [
        (Sampling(temperature=0.5), [0.783, 0.196, 0.022]),
        (Sampling(temperature=1.0, top_k=2), [0.667, 0.333, 0.0]),
    ],
)
@pytest.mark.parametrize("rule", RULES.values())
def test_04_every_row_and_the_bonus_go_through_the_same_transform(rule, sampling, right):
    rows = [[0.6, 0.3, 0.1]] * 3
    expected = sampling.probs(logs(rows))[0, 0].tolist()
    scaled = [x / 1.0 for x in expected]
    assert scaled == pytest.approx(right, abs=1.5e-3)
    draft = drafted([0, 1], [[0.4, 0.4, 0.2]] * 2)
    if rule is match:
        draft = drafted([0, 1])

    def outcome(randomness):
        verdict = rule(CONTEXT, draft, Scores(logs(rows)), sampling, randomness)
        return int(verdict.num_accepted), int(verdict.next_token)

    law = enumerate_law(outcome)
    bonus = {token: share for (n, token), share in law.items() if n == 2}
    got = [bonus.get(token, 0.0) / sum(bonus.values()) for token in range(3)]
    assert got == pytest.approx(expected, abs=1e-12)


class ZeroUniforms(CounterRandomness):
    """Every uniform is exactly 0."""

    def uniform(self, position, lane, offset=0):
        return torch.zeros_like(position, dtype=torch.float64)


class LargeUniforms(CounterRandomness):
    """Every uniform is the largest below 1."""

    def uniform(self, position, lane, offset=0):
        return torch.full_like(position, 1 - 2.0**-52, dtype=torch.float64)


@pytest.mark.parametrize("rule", [reject, block])
def test_06_a_uniform_of_zero_does_not_accept_an_impossible_token(rule):
    p, q = [0.0, 0.5, 0.5], [0.5, 0.5, 0.0]
    scores = Scores(logs([p, p]))
    verdict = rule(CONTEXT, drafted([0], [q]), scores, PLAIN, ZeroUniforms([0]))
    assert verdict.num_accepted.tolist() == [0]
    assert verdict.next_token.tolist() == [2]


@pytest.mark.parametrize("rule", [reject, block])
@pytest.mark.parametrize("chance", [ZeroUniforms, LargeUniforms])
def test_06_no_residual_and_single_survivors_give_finite_draws(rule, chance):
    p = [0.25, 0.25, 0.5]
    certain = [1.0, 0.0, 0.0]
    for law in (p, certain):
        scores = Scores(logs([law, law]))
        verdict = rule(CONTEXT, drafted([0], [law]), scores, PLAIN, chance([0]))
        assert law[int(verdict.next_token)] > 0


def test_06_an_empty_residual_falls_back_to_the_target():
    """A draft law that covers p up to rounding leaves nothing to correct from."""
    q = [0.5, 0.5]
    above = torch.tensor([[q]], dtype=torch.float64) * (1 + 1e-9)
    draft = Draft(torch.tensor([[0]]), torch.tensor([1]), probs=above)
    verdict = reject(CONTEXT, draft, Scores(logs([q, q])), PLAIN, LargeUniforms([0]))
    assert verdict.num_accepted.tolist() == [0]
    assert verdict.next_token.tolist() == [1]


def test_07_sample_and_match_is_exact_and_accepts_less_than_the_ratio():
    p, q = [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]
    assert first_token_law(match, p, sampled(q)) == pytest.approx(p, abs=1e-12)

    def accepted(rule) -> float:
        total = 0.0
        for weight, draft in sampled(q):
            law = enumerate_law(
                lambda r, d=draft: (
                    int(rule(CONTEXT, d, Scores(logs([p, p])), PLAIN, r).num_accepted),
                )
            )
            total += weight * law.get((1,), 0.0)
        return total

    assert accepted(match) == pytest.approx(0.30, abs=1e-12)
    assert accepted(reject) == pytest.approx(0.60, abs=1e-12)


def test_07_a_fresh_draw_after_a_mismatch_is_biased():
    p, q = [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]
    wrong = first_token_law(fresh_draw_after_mismatch, p, sampled(q))
    assert wrong == pytest.approx([0.54, 0.36, 0.10], abs=1e-12)


@pytest.mark.parametrize("rule", RULES.values())
def test_rows_of_a_batch_are_judged_alone(rule):
    torch.manual_seed(1)
    logits = torch.randn(5, 4, 6, dtype=torch.float64)
    q = torch.randn(5, 3, 6, dtype=torch.float64).softmax(-1)
    tokens = torch.randint(6, (5, 3))
    counts, lengths = torch.tensor([3, 0, 2, 1, 3]), torch.tensor([4, 7, 2, 9, 4])
    contexts = Context(torch.zeros(5, 9, dtype=torch.long), lengths, lengths)
    probs = None if rule is match else q
    draft = Draft(tokens, counts, probs=probs)
    whole = rule(contexts, draft, Scores(logits), PLAIN, CounterRandomness([3, 1, 4, 1, 5]))
    for b, seed in enumerate([3, 1, 4, 1, 5]):
        row = slice(b, b + 1)
        context = Context(contexts.tokens[row], lengths[row], lengths[row])
        alone = Draft(tokens[row], counts[row], probs=None if probs is None else probs[row])
        verdict = rule(context, alone, Scores(logits[row]), PLAIN, CounterRandomness([seed]))
        assert verdict.num_accepted[0] == whole.num_accepted[b] <= counts[b]
        assert verdict.next_token[0] == whole.next_token[b]


def test_17_a_draft_vocabulary_is_mapped_by_explicit_ids():
    """Target of 8 ids, draft of 4: columns 0..3 stand for 0, 2, 5, 7."""
    ids, q = torch.tensor([0, 2, 5, 7]), torch.tensor([[[0.1, 0.2, 0.3, 0.4]]])
    draft = Draft(torch.tensor([[5]]), torch.tensor([1]), probs=q, draft_to_target=ids)
    scores = Scores(torch.zeros(1, 2, 8))
    _, draft_probs = laws(CONTEXT, draft, scores, PLAIN)
    assert draft_probs[0, 0].tolist() == pytest.approx([0.1, 0, 0.2, 0, 0, 0.3, 0, 0.4])
    assert draft_probs[0, 1].sum() == 0  # nothing was drawn behind the draft


def test_17_a_narrower_draft_head_is_padded_with_zeros():
    draft = Draft(torch.tensor([[1]]), torch.tensor([1]), probs=torch.tensor([[[0.5, 0.5]]]))
    _, draft_probs = laws(CONTEXT, draft, Scores(torch.zeros(1, 2, 5)), PLAIN)
    assert draft_probs[0, 0].tolist() == [0.5, 0.5, 0, 0, 0]


def test_auto_takes_match_without_a_law_and_reject_with_one():
    assert choose_rule("auto", drafted([0])) is match
    assert choose_rule("auto", drafted([0], [[1.0, 0.0]])) is reject


def test_block_refuses_trees_with_a_sentence():
    tree = Draft(torch.tensor([[0]]), torch.tensor([1]), parents=torch.tensor([[-1]]))
    assert choose_rule("auto", tree) is match
    asked = CONTEXT, tree, Scores(logs([[0.5, 0.5]] * 2)), PLAIN, CounterRandomness([1])
    for rule, name in ((block, "block"), (TypicalAcceptance(), "typical acceptance")):
        with pytest.raises(ValueError, match=f"{name} judges chains"):
            rule(*asked)


@pytest.mark.parametrize("rule", RULES.values())
def test_rules_read_nothing_on_the_host(rule):
    """On device meta any hidden host read or data-dependent shape raises."""
    context = Context(
        torch.zeros(2, 9, dtype=torch.long, device="meta"),
        *(torch.zeros(2, dtype=torch.long, device="meta") for _ in range(2)),
    )
    q = None if rule is match else torch.zeros(2, 3, 5, device="meta")
    tokens = torch.zeros(2, 3, dtype=torch.long, device="meta")
    draft = Draft(tokens, torch.zeros(2, dtype=torch.long, device="meta"), probs=q)
    scores = Scores(torch.zeros(2, 4, 5, device="meta"))
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1, repetition_penalty=1.1)
    verdict = rule(context, draft, scores, sampling, CounterRandomness([1, 2], "meta"))
    assert verdict.num_accepted.shape == verdict.next_token.shape == (2,)


def test_chi_square_sees_a_two_percent_bias_and_passes_the_production_source():
    """The second line: 50,000 draws with hashed uniforms, and the power of the test itself."""
    p, q = [0.5, 0.3, 0.15, 0.05], [0.2, 0.3, 0.3, 0.2]
    num = 50_000
    lengths = torch.full((num,), 3)
    context = Context(torch.zeros(num, 3, dtype=torch.long), lengths, lengths)
    chance = CounterRandomness(range(num))
    law = torch.tensor(q, dtype=torch.float64).expand(num, 1, -1)
    tokens = chance.draw(law, lengths[:, None], Lane.DRAFT)
    scores = Scores(torch.tensor(p, dtype=torch.float64).log().expand(num, 2, -1))
    draft = Draft(tokens, torch.ones(num, dtype=torch.long), probs=law)
    verdict = reject(context, draft, scores, PLAIN, chance)
    first = torch.where(verdict.num_accepted > 0, tokens[:, 0], verdict.next_token)
    counts = torch.bincount(first, minlength=4).tolist()

    def chi_square_p_value(expected: list[float]) -> float:
        value = sum((c - num * e) ** 2 / (num * e) for c, e in zip(counts, expected, strict=True))
        tail = math.erfc(math.sqrt(value / 2))  # chi-square with 3 degrees of freedom
        return tail + math.sqrt(2 * value / math.pi) * math.exp(-value / 2)

    assert chi_square_p_value(p) > 1e-4
    assert chi_square_p_value([0.52, 0.29, 0.145, 0.045]) < 1e-4
