"""Panels: a few sliders above one picture. What they show is computed by plain functions."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import ipywidgets
from matplotlib.figure import Figure

from specdec_lab.study.figures.style import DPI, render


class Panel:
    """Sliders, one picture, and a sentence with the picture's numbers.

    ``controls`` maps a name to the list of its values; the slider is called by that name.
    ``draw(**state)`` returns a matplotlib Figure or HTML; ``describe(**state)`` the sentence, which
    says the state in words (``k = 5: ...``) and describes the picture for who cannot see it.
    ``start`` gives first values other than the first of each list. A panel redraws when a slider is
    let go, or all the time if ``live`` (only for what takes less than 0.15 s); a state that was
    shown before is not computed again. Whatever goes wrong is shown in the panel's place.
    Raises ValueError for a list that is empty or holds a value twice, and for a start outside it.
    """

    def __init__(
        self,
        controls: Mapping[str, Sequence[object]],
        draw: Callable[..., Figure | str],
        describe: Callable[..., str],
        *,
        start: Mapping[str, object] | None = None,
        live: bool = False,
        dpi: int = DPI,
    ) -> None:
        self._draw, self._describe, self._dpi = draw, describe, dpi
        self._seen: dict[tuple, str] = {}
        self.sliders = {
            name: _slider(name, values, start or {}, live) for name, values in controls.items()
        }
        self.view = ipywidgets.HTML()
        self.box = ipywidgets.VBox([ipywidgets.HBox(list(self.sliders.values())), self.view])
        for slider in self.sliders.values():
            slider.observe(self._moved, names="value")
        self._moved()

    @property
    def state(self) -> dict[str, object]:
        """The value of every slider."""
        return {name: slider.value for name, slider in self.sliders.items()}

    def redraw(self) -> None:
        """Show the present state; an error is shown in its place and raised too."""
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

    def _moved(self, change: object = None) -> None:
        with suppress(Exception):  # a kernel would swallow it too; the panel shows it
            self.redraw()

    def _content(self, state: dict[str, object]) -> str:
        drawn, sentence = self._draw(**state), self._describe(**state)
        if isinstance(drawn, Figure):
            drawn = _image(drawn, sentence, self._dpi)
        return (
            f'<figure class="specdec-figure" style="margin:0">{drawn}'
            f'<figcaption class="specdec-status">{html.escape(sentence)}</figcaption></figure>'
        )


def _slider(
    name: str, values: Sequence[object], start: Mapping[str, object], live: bool
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
        continuous_update=live,
        style={"description_width": "initial"},
        layout={"width": "360px"},
    )


def _image(figure: Figure, alt: str, dpi: int) -> str:
    encoded = base64.b64encode(render(figure, "png", dpi)).decode()
    width = round(figure.get_figwidth() * 100)
    return f'<img alt="{html.escape(alt)}" width="{width}" src="data:image/png;base64,{encoded}">'


def _error(error: Exception) -> str:
    text = html.escape(f"{type(error).__name__}: {error}")
    return f'<pre class="specdec-error" role="alert">This picture could not be drawn.\n{text}</pre>'
