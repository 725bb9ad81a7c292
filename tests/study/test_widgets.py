"""Panels: one picture, one redraw a change, errors that show (CASES 34 to 37).

pytest tests/study/test_widgets.py
"""

import asyncio
import base64
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import RendererAgg
from PIL import Image

from specdec_lab.study.figures.style import new_figure
from specdec_lab.study.widgets import Panel, WordRenderer


class Lesson:
    """A drawing of k and temperature that counts how often it was asked."""

    def __init__(self):
        self.asked = []

    def draw(self, **state):
        """A figure that differs from state to state."""
        self.asked.append(state)
        figure = new_figure(2, 2)
        figure.subplots().plot([0, 1], [0, state["k"]])
        return figure

    def describe(self, **state):
        """The state in words."""
        return ", ".join(f"{name} = {value}" for name, value in state.items()) + ": <fine>"


def panel_of(lesson, **options):
    """A panel with one slider k."""
    return Panel({"k": [0, 1, 2, 4]}, lesson.draw, lesson.describe, dpi=50, **options)


def drag(slider, index):
    """What a browser sends when the handle is let go."""
    data = {"method": "update", "state": {"index": index}, "buffer_paths": []}
    slider._handle_msg({"content": {"data": data}, "buffers": []})


def source(panel):
    """The embedded picture of a panel."""
    return re.search(r'src="([^"]+)"', panel.view.value)[1]


def test_34_every_change_gives_exactly_one_other_picture():
    lesson = Lesson()
    panel = panel_of(lesson, start={"k": 4})
    seen = {source(panel)}
    assert "k = 4: &lt;fine&gt;" in panel.view.value
    for index in (0, 1, 2):
        drag(panel.sliders["k"], index)
        seen.add(source(panel))
        assert panel.view.value.count("<figure") == panel.view.value.count("<img") == 1
    assert "k = 2" in panel.view.value
    assert len(seen) == len(lesson.asked) == 4


def test_34_no_state_moves_what_is_below_the_picture():
    lesson = Lesson()

    def draw(k):
        figure = lesson.draw(k=k)
        figure.axes[0].set_title("word " * 20 * k)  # what does not fit is cut off
        return figure

    panel = Panel({"k": [0, 1]}, draw, lesson.describe)
    for index in (0, 1):
        drag(panel.sliders["k"], index)
        png = base64.b64decode(source(panel).partition(",")[2])
        assert Image.open(io.BytesIO(png)).size == (200, 200)
        assert 'width="200" height="200"' in panel.view.value


def test_34_no_figure_stays_open_after_many_changes():
    panel = panel_of(Lesson())
    for index in [1, 2, 3, 0] * 7:
        drag(panel.sliders["k"], index)
        assert panel.view.value
    assert plt.get_fignums() == []


def test_35_a_state_seen_before_is_not_computed_again():
    lesson = Lesson()
    panel = panel_of(lesson)
    first = panel.view.value
    for index in (1, 0, 1, 0):
        drag(panel.sliders["k"], index)
    assert panel.view.value == first
    assert [state["k"] for state in lesson.asked] == [0, 1]


def test_35_every_slider_speaks_while_it_is_dragged():
    assert panel_of(Lesson()).sliders["k"].continuous_update is True


def test_35_where_the_hand_is_faster_than_the_drawing_only_the_last_state_is_drawn():
    lesson = Lesson()
    panel = panel_of(lesson)
    drawing = lesson.draw

    async def hand():
        drag(panel.sliders["k"], 1)
        drag(panel.sliders["k"], 2)  # joins the first move
        async with asyncio.timeout(30):  # a busy machine draws late
            while "k = 4:" not in panel.view.value:
                await asyncio.sleep(0.01)

    def slow(**state):
        if state["k"] == 2:  # while it is drawn, these arrive and wait in the kernel
            for index in (3, 0, 1, 3):
                asyncio.get_running_loop().call_soon(drag, panel.sliders["k"], index)
        return drawing(**state)

    panel._draw = slow
    asyncio.run(hand())
    assert [state["k"] for state in lesson.asked] == [0, 2, 4]
    assert "k = 4:" in panel.view.value


def test_36_each_slider_moves_its_own_value_and_once():
    lesson = Lesson()
    controls = {"k": [1, 2, 3], "temperature": [0.0, 0.5, 1.0]}
    panel = Panel(controls, lesson.draw, lesson.describe, dpi=50)
    drag(panel.sliders["temperature"], 2)
    drag(panel.sliders["k"], 1)
    assert panel.state == {"k": 2, "temperature": 1.0}
    assert lesson.asked == [
        {"k": 1, "temperature": 0.0},
        {"k": 1, "temperature": 1.0},
        {"k": 2, "temperature": 1.0},
    ]


def test_36_a_panel_built_twice_redraws_once_a_change():
    first, second = Lesson(), Lesson()
    panels = panel_of(first), panel_of(second)
    drag(panels[1].sliders["k"], 1)
    assert (len(first.asked), len(second.asked)) == (1, 2)


def test_37_an_error_is_seen_in_the_panel_and_by_tests():
    lesson = Lesson()

    def draw(k):
        if k == 2:
            raise ValueError("<no picture for two>")
        return lesson.draw(k=k)

    panel = Panel({"k": [0, 1, 2]}, draw, lesson.describe, dpi=50)
    drag(panel.sliders["k"], 2)
    assert "specdec-error" in panel.view.value
    assert "&lt;no picture for two&gt;" in panel.view.value
    with pytest.raises(ValueError, match="no picture for two"):
        panel.redraw()
    drag(panel.sliders["k"], 1)
    assert "specdec-error" not in panel.view.value


def test_html_is_shown_as_it_is_and_the_picture_is_described():
    panel = Panel({"k": [1]}, lambda k: "<b>drawn</b>", lambda k: "k = 1: words", dpi=50)
    assert "<b>drawn</b>" in panel.view.value
    assert ">k = 1: words</figcaption>" in panel.view.value
    assert 'alt="k = 0: &lt;fine&gt;"' in panel_of(Lesson()).view.value


def test_the_sliders_are_called_by_their_names_and_show_their_values():
    lesson = Lesson()
    panel = Panel({"k": [1], "temperature": [0.0, 0.25]}, lesson.draw, lesson.describe, dpi=50)
    slider = panel.sliders["temperature"]
    assert slider.description == "temperature"
    assert slider.style.description_width == "initial"
    assert [label for label, _ in slider.options] == ["0", "0.25"]


@pytest.mark.parametrize(("static", "shown"), [("1", 0), ("0", 1), ("", 1)])
def test_38_nothing_is_displayed_where_only_what_can_be_stored_counts(static, shown, monkeypatch):
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    monkeypatch.setenv("SPECDEC_LAB_STATIC", static)
    panel = panel_of(Lesson())
    assert panel.show() is None
    assert displayed == [panel.box] * shown


@pytest.mark.parametrize("values", [[], [1, 1]])
def test_a_list_without_values_or_with_one_twice_is_refused(values):
    with pytest.raises(ValueError, match="slider k needs"):
        Panel({"k": values}, Lesson().draw, Lesson().describe)


def test_a_start_that_is_no_value_is_refused():
    with pytest.raises(ValueError, match="3 is not among the values of k"):
        panel_of(Lesson(), start={"k": 3})


def pixels(renderer, figure):
    """What a renderer makes of a figure, as numbers."""
    renderer.clear()
    figure.draw(renderer)
    return np.asarray(renderer.buffer_rgba()).astype(int)


@pytest.mark.parametrize("text", ["fjord", "½ p→q", "two\nlines", "$x^2$"])
@pytest.mark.parametrize("look", [{}, {"rotation": 90}, {"alpha": 0.4}, {"x": 180}, {"y": -4}])
def test_words_that_are_copied_look_as_matplotlib_draws_them(text, look):
    figure = new_figure(2, 2)
    figure.set_dpi(100)
    figure.text(100, 70, text, color="#0173b2", transform=None).set(**look)
    plain, copying = RendererAgg(200, 200, 100), WordRenderer(200, 200, 100)
    right, first, second = (pixels(which, figure) for which in (plain, copying, copying))
    assert (first == second).all()
    shifted = np.abs(first - right).sum() / np.abs(right - 255).sum()
    assert shifted < 0.15  # the upper of two lines stands between two pixels
