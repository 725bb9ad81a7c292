"""Generated text, token by token, each with its kind: accepted, bonus, recovered or plain."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lab.study.figures.style import TOKEN_COLORS, TOKEN_MARKS

if TYPE_CHECKING:
    from specdec_lab.decoding.records import RowStep
    from specdec_lab.decoding.target import Target

KINDS = {  # in the order of a legend
    "accepted": "drafted, and accepted by the target",
    "bonus": "the target's own token behind a fully accepted draft",
    "recovered": "the target's own token where it refused the draft",
    "plain": "the target's own token, nothing was drafted",
}
HALF = "…"  # stands for a token that is only a part of a character


def pieces(target: Target, steps: Sequence[RowStep]) -> list[list[list[str]]]:
    """Per step the committed tokens as ``[text, kind]``; special tokens are shown.

    A letter that is split over tokens stands at the last of them, ``…`` at the others.
    """
    from specdec_lab.decoding.text import Detokenizer

    text = Detokenizer(target.tokenizer, special=True)
    return [
        [
            [text.push([token]) or HALF, kind]
            for token, kind in zip(step.tokens, step.kinds, strict=True)
        ]
        for step in steps
    ]


def visible(text: str) -> str:
    """``text`` with marks for the whitespace: a dot for a space, arrows for line end and tab."""
    return text.replace(" ", "·").replace("\n", "↵").replace("\t", "→")


@dataclass(frozen=True, slots=True)
class ColouredText:
    """Tokens by kind, as HTML in a notebook and as marked text elsewhere.

    ``steps`` is what `pieces` returns. Every token carries the mark of its kind too, as colours are
    lost where a page removes styles (GitHub) and for some readers.
    """

    steps: list[list[list[str]]]

    def __repr__(self) -> str:
        lines = [f"{TOKEN_MARKS[kind]} {kind}: {meaning}" for kind, meaning in KINDS.items()]
        words = [
            " ".join(f"{visible(text)}{TOKEN_MARKS[kind]}" for text, kind in step)
            for step in self.steps
        ]
        return "\n".join([*lines, " | ".join(words)])

    def _repr_html_(self) -> str:
        legend = "".join(
            f"<li>{_box(kind, kind)} {html.escape(meaning)}</li>" for kind, meaning in KINDS.items()
        )
        spans = ["<wbr>".join(_box(*piece) for piece in step) for step in self.steps]
        return (
            '<ul style="list-style:none;padding:0">'
            f'{legend}</ul><p style="line-height:2.1">{" | ".join(spans)}</p>'
            "<p>Every | ends a step: one forward pass of the target.</p>"
        )


def _box(text: str, kind: str) -> str:
    """One token as a coloured box with its mark."""
    style = (
        f"background:{TOKEN_COLORS[kind]};color:#111;padding:2px 3px;border-radius:3px;"
        "font-family:monospace"
    )
    return (
        f'<span title="{kind}" style="{style}">{html.escape(visible(text))}</span>'
        f"<sup>{TOKEN_MARKS[kind]}</sup>"
    )
