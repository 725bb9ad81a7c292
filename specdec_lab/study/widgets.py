"""Panels: a few sliders above one picture. What they show is computed by plain functions."""

from __future__ import annotations

import asyncio
import base64
import gc
import html
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import ipywidgets
import numpy as np
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from PIL import Image

DPI = 100  # of a panel's picture: one pixel of it is one of the page
COLOURS = 128  # of it: fewer show where colours are chosen quickly
GATHER = 0.01  # seconds in which further moves of a slider join the same redraw


class Panel:
    """Sliders, one picture, and a sentence with the picture's numbers.

    ``controls`` maps a name to the list of its values; the slider is called by that name.
    ``draw(**state)`` returns a matplotlib Figure or HTML; ``describe(**state)`` the sentence, which
    says the state in words (``k = 5: ...``) and describes the picture for who cannot see it.
    ``start`` gives first values other than the first of each list. The picture follows a slider
    while it is dragged; where the drawing is slower than the hand, only the newest state is drawn,
    and a state that was shown before is not computed again. Figures of one size never move what is
    below them. Whatever goes wrong is shown in the panel's place.
    Raises ValueError for a list that is empty or holds a value twice, and for a start outside it.
    """

    def __init__(
        self,
        controls: Mapping[str, Sequence[object]],
        draw: Callable[..., Figure | str],
        describe: Callable[..., str],
        *,
        start: Mapping[str, object] | None = None,
        dpi: int = DPI,
    ) -> None:
        self._draw, self._describe, self._dpi = draw, describe, dpi
        self._renderer = WordRenderer(1, 1, dpi)
        self._seen: dict[tuple, str] = {}
        self._due = False
        self.sliders = {
            name: _slider(name, values, start or {}) for name, values in controls.items()
        }
        self.view = ipywidgets.HTML()
        self.box = ipywidgets.VBox([ipywidgets.HBox(list(self.sliders.values())), self.view])
        for slider in self.sliders.values():
            slider.observe(self._moved, names="value")
        self._show_newest()

    @property
    def state(self) -> dict[str, object]:
        """The value of every slider."""
        return {name: slider.value for name, slider in self.sliders.items()}

    def redraw(self) -> None:
        """Show the present state now; an error is shown in its place and raised too."""
        state = self.state
        key = tuple(state.values())
        try:
            if key not in self._seen:
                self._seen[key] = self._content(state)
            self.view.value = self._seen[key]
        except Exception as error:
            self.view.value = _error(error)
            raise

    def show(self) -> None:
        """Display the panel; nothing where only what can be stored counts (SPECDEC_LAB_STATIC)."""
        if os.environ.get("SPECDEC_LAB_STATIC", "") in ("", "0"):
            from IPython.display import display

            display(self.box)

    def _moved(self, change: object) -> None:
        """Redraw once for all moves that wait in the kernel; at once where no loop runs."""
        if self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._show_newest()
        else:
            self._due = True
            loop.call_later(GATHER, self._show_newest)

    def _show_newest(self) -> None:
        self._due = False
        with _young_garbage(), suppress(Exception):  # a kernel swallows it too; the panel shows it
            self.redraw()

    def _content(self, state: dict[str, object]) -> str:
        drawn, sentence = self._draw(**state), self._describe(**state)
        if isinstance(drawn, Figure):
            drawn = self._image(drawn, sentence)
        return (
            f'<figure class="specdec-figure" style="margin:0">{drawn}'
            '<figcaption class="specdec-status" aria-live="polite" style="max-width:840px;'
            f'line-height:1.4;min-height:4.2em">{html.escape(sentence)}</figcaption></figure>'
        )

    def _image(self, figure: Figure, alt: str) -> str:
        """An ``img`` of the figure, drawn once, that keeps its place on the page while it loads."""
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        encoded = base64.b64encode(self._png(figure)).decode()
        return (
            f'<img alt="{html.escape(alt)}" width="{width}" height="{height}" '
            f'style="max-width:none" src="data:image/png;base64,{encoded}">'
        )

    def _png(self, figure: Figure) -> bytes:
        """The figure's pixels as a small PNG, fast; a renderer remembers how wide words are."""
        figure.set_dpi(self._dpi)
        width, height = map(int, figure.bbox.size)
        if (self._renderer.width, self._renderer.height) != (width, height):
            self._renderer = WordRenderer(width, height, self._dpi)
        self._renderer.clear()
        figure.draw(self._renderer)
        pixels = Image.frombuffer("RGBA", (width, height), self._renderer.buffer_rgba())
        few = pixels.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE)
        buffer = io.BytesIO()
        few.save(buffer, format="png", compress_level=1)
        return buffer.getvalue()


class WordRenderer(RendererAgg):
    """Draws a word once and copies it afterwards; words keep to whole pixels.

    Most words of a picture are those of the picture before, and FreeType takes a third of its time.
    """

    def __init__(self, width: int, height: int, dpi: float) -> None:
        super().__init__(width, height, dpi)
        self._words: dict[tuple, np.ndarray] = {}

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: bool = False,
        mtext: Text | None = None,
    ) -> None:
        """What matplotlib calls for every line of text; ``y`` is downwards."""
        if angle or ismath or gc.get_alpha() != 1:
            super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
            return
        key = s, hash(prop), gc.get_rgb()
        if key not in self._words:
            self._words[key] = self._word(gc, s, prop)
        word = self._words[key]
        margin = word.shape[0] // 2
        self.draw_image(gc, round(x) - margin, self.height - round(y) - margin, word)

    def _word(self, gc: GraphicsContextBase, s: str, prop: FontProperties) -> np.ndarray:
        """The pixels of a word, the lowest row first, with room on all sides of its start."""
        width, height, _ = self.get_text_width_height_descent(s, prop, False)
        margin = 2 + math.ceil(height)
        paper = RendererAgg(math.ceil(width) + 2 * margin, 2 * margin, self.dpi)
        ink = paper.new_gc()  # not gc: what clips the picture clips no word
        ink.set_foreground(gc.get_rgb())
        paper.draw_text(ink, margin, margin, s, prop, 0)
        return np.asarray(paper.buffer_rgba())[::-1].copy()


def _slider(
    name: str, values: Sequence[object], start: Mapping[str, object]
) -> ipywidgets.SelectionSlider:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"The slider {name} needs a list of different values, not {values!r}.")
    first = start.get(name, values[0])
    if first not in values:
        raise ValueError(f"{first!r} is not among the values of {name}: {list(values)}.")
    options = [(f"{v:g}" if isinstance(v, float) else str(v), v) for v in values]
    return ipywidgets.SelectionSlider(
        options=options,
        value=first,
        description=name,
        continuous_update=True,
        style={"description_width": "initial"},
        layout={"width": "360px"},
    )


def _error(error: Exception) -> str:
    text = html.escape(f"{type(error).__name__}: {error}")
    return f'<pre class="specdec-error" role="alert">This picture could not be drawn.\n{text}</pre>'


@contextmanager
def _young_garbage() -> Iterator[None]:
    """Collects what is drawn and dropped within while it is young.

    A figure consists of cycles. Left to itself Python looks for them among all objects every twenty
    pictures or so, which takes half a second in a kernel that has loaded a model.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if enabled:
            gc.enable()
