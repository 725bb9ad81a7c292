"""The recorded decisions are what production code did."""

import pytest
import torch

from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.randomness import CounterRandomness, Lane
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.study.decisions import (
    RecordingRandomness,
    as_records,
    as_steps,
    from_records,
    record,
    visible,
)
from toys import ToyDrafter, ToyTarget, pair_of_laws

PROMPT = [0, 1]
PLAIN = Sampling(temperature=1.0)
SETTINGS = {
    "reject": ("auto", PLAIN, "law"),
    "match": ("auto", PLAIN, "one_hot"),
    "match_law": ("match", PLAIN, "law"),
    "reject_one_hot": ("reject", PLAIN, "one_hot"),
    "greedy": ("auto", Sampling(), "one_hot"),
}


def toys(draft: str = "law", shape: str = "dense", eos=()):
    target_law, draft_law = pair_of_laws(shape, 5, 4)
    drafter = ToyDrafter(draft_law, argmax=draft != "law", tell_law=draft == "law")
    return ToyTarget(target_law, 4, eos), drafter


def recorded(setting: str = "reject", seed: int = 3, max_new_tokens: int = 24, eos=()):
    verify, sampling, draft = SETTINGS[setting]
    target, drafter = toys(draft, eos=eos)
    options = {"k": 3, "sampling": sampling, "seed": seed, "max_new_tokens": max_new_tokens}
    decisions = record(target, PROMPT, drafter, verify=verify, **options)
    plain = generate(target, [PROMPT], drafter, verify=verify, **options)
    return decisions, plain


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_one_decision_per_written_token_and_the_same_text_as_generate(setting, seed):
    decisions, generation = recorded(setting, seed)
    assert [d.written for d in decisions] == [f"<{t}>" for t in generation.tokens[0]]
    kinds = [kind for row in generation.trace.rows[0] for kind in row.kinds]
    assert [d.outcome for d in decisions] == kinds


@pytest.mark.parametrize("setting", ["reject", "match", "match_law", "reject_one_hot"])
def test_a_drafted_token_stays_exactly_where_its_coin_falls_into_the_stretch(setting):
    for seed in range(4):
        judged = [d for d in recorded(setting, seed)[0] if d.drafted]
        assert {d.outcome for d in judged} <= {"accepted", "recovered"}
        for d in judged:
            assert (d.low <= d.coin < d.high) == (d.outcome == "accepted")


def test_the_stretch_of_the_ratio_rule_is_min_1_p_over_q():
    for d in recorded("reject")[0]:
        if d.drafted:
            assert d.low == 0
            assert d.accept_prob == pytest.approx(min(1, d.target_prob / d.draft_prob))


def test_the_stretch_of_matching_is_as_wide_as_p():
    for d in recorded("match")[0]:
        if d.drafted:
            assert d.draft_prob == 1
            assert d.accept_prob == pytest.approx(d.target_prob)


def test_greedy_has_no_coin_and_no_draw():
    decisions, _ = recorded("greedy")
    assert {d.outcome for d in decisions} >= {"accepted", "recovered"}
    assert all(d.coin is None and d.draw is None for d in decisions)


def test_the_residual_is_what_p_has_more_than_q():
    refused = [d for d in recorded("reject")[0] if d.outcome == "recovered"]
    assert refused
    for d in refused:
        more = [max(0.0, e.target_prob - e.draft_prob) for e in d.entries]
        assert [e.residual for e in d.entries] == pytest.approx([m / sum(more) for m in more])
        assert next(e for e in d.entries if e.token == d.drafted).residual == 0
        assert next(e for e in d.entries if e.token == d.written).residual > 0


@pytest.mark.parametrize("setting", SETTINGS)
def test_bars_are_a_whole_law(setting):
    for d in recorded(setting)[0]:
        assert sum(e.target_prob for e in d.entries) == pytest.approx(1)
        tokens = [e.token for e in d.entries]
        assert len(set(tokens)) == len(tokens)
        assert {d.drafted, d.written} - {None} <= set(tokens)
        assert tokens[-1] == "all others"


def test_what_an_end_token_cuts_off_is_not_shown():
    for seed in range(6):
        decisions, generation = recorded("reject", seed, eos=(2,))
        assert len(decisions) == len(generation.tokens[0])


def test_block_coins_are_not_shown():
    target, drafter = toys()
    with pytest.raises(ValueError, match="auto, match and reject"):
        record(target, PROMPT, drafter, sampling=PLAIN, seed=0, max_new_tokens=4, verify="block")


def test_the_recorder_changes_no_coin_and_no_draw():
    inner = CounterRandomness([5])
    watched = RecordingRandomness(inner)
    position, half = torch.tensor([[3, 4, 5]]), torch.full((1, 3), 0.5)
    assert watched.coin(half, position, Lane.ACCEPT).equal(inner.coin(half, position, Lane.ACCEPT))
    law = torch.tensor([[0.2, 0.3, 0.5]])
    drawn = watched.draw(law, position[:, 0], Lane.RECOVER)
    assert drawn.equal(inner.draw(law, position[:, 0], Lane.RECOVER))
    assert set(watched.take()) == {Lane.ACCEPT, Lane.RECOVER}
    assert watched.take() == {}


def test_records_come_back_as_they_were():
    decisions, _ = recorded()
    assert from_records(as_records(decisions)) == decisions


def test_steps_are_shown_with_their_tokens_and_kinds():
    decisions, generation = recorded()
    shown = as_steps(toys()[0], generation.trace.rows[0])
    assert [t for step in shown for t in step["tokens"]] == [d.written for d in decisions]
    assert [k for step in shown for k in step["kinds"]] == [d.outcome for d in decisions]
    assert all(len(step["drafted"]) <= 3 for step in shown)


def test_white_space_and_end_tokens_can_be_seen():
    class Text:
        tokenizer = "any"
        pieces = (" a", "\n\n", "\t", "", "<|end|>")

        def decode(self, ids, special):
            assert special
            return self.pieces[ids[0]]

    assert [visible(Text(), i) for i in range(5)] == ["␣a", "↵↵", "⇥", "∅", "<|end|>"]
