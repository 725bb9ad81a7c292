"""Target and draft side by side: top entries, halves of the emitted law, the sweep."""

import pytest
import torch

from specdec_lab.study.exact_laws import first_token_law
from specdec_lab.study.overlap import (
    logits_along,
    logits_behind,
    most_probable,
    rejection_parts,
    sweep_temperature,
    top_entries,
)
from toys import random_target

TARGET = torch.tensor([0.1, 0.6, 0.3, 0.0], dtype=torch.float64)
DRAFT = torch.tensor([0.3, 0.2, 0.1, 0.4], dtype=torch.float64)


def test_logits_behind_many_tokens_are_those_behind_each():
    target, text = random_target(), [3, 1, 4, 1, 5, 9]
    together = logits_behind(target, text, 3)
    apart = [logits_behind(target, text[: len(text) - i])[0] for i in (2, 1, 0)]
    assert together.dtype == torch.float64
    assert torch.allclose(together, torch.stack(apart), atol=1e-9)
    assert logits_behind(target, [7]).shape == (1, target.vocab_size)
    assert logits_behind(target, text, len(text)).shape == (6, target.vocab_size)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_logits_along_a_text_are_those_behind_each_place(rows):
    target, text = random_target(), [3, 1, 4, 1, 5, 9, 2]
    along = logits_along(target, text, 5, rows)
    assert torch.allclose(along, logits_behind(target, text, 5), atol=1e-9)


def test_the_most_probable_of_either_law_are_shown():
    assert most_probable(TARGET, DRAFT, 2) == [1, 3]


def test_top_entries_sum_to_the_whole():
    assert top_entries(DRAFT, [3, 0]) == pytest.approx([0.4, 0.3, 0.3])
    assert top_entries(TARGET, [0, 1, 2, 3])[-1] == 0


def test_the_halves_add_up_to_p_and_are_what_the_rule_does():
    accepted, recovered = rejection_parts(TARGET, DRAFT)
    assert torch.allclose(accepted + recovered, TARGET, atol=1e-15)
    assert first_token_law("reject", TARGET.tolist(), DRAFT.tolist()) == pytest.approx(
        (accepted + recovered).tolist(), abs=1e-12
    )
    assert rejection_parts(TARGET, TARGET)[1].sum() == 0


def test_a_sweep_holds_both_halves_at_every_temperature():
    rows = sweep_temperature(TARGET.log(), DRAFT.log(), [1, 0], [0, 0.5, 1.0])
    assert [row["temperature"] for row in rows] == [0, 0.5, 1.0]
    assert rows[0]["acceptance"] == 0  # other favourites
    assert rows[2]["acceptance"] == pytest.approx(0.4)
    for row in rows:
        both = [a + r for a, r in zip(row["accepted"], row["recovered"], strict=True)]
        assert both == pytest.approx(row["target_probs"], abs=1e-12)
