"""The look of the figures, and that the same numbers give the same bytes (CASES 40, 41).

That the stored files are what their numbers draw is the part "figures" of .ci/check.py.

pytest tests/study/test_style.py
"""

import base64

import matplotlib
import matplotlib.pyplot as plt
import pytest

from project import ROOT
from specdec_lab.__main__ import main
from specdec_lab.study import recordings
from specdec_lab.study.figures import FIGURES, style
from specdec_lab.study.figures.measured import MEASURED

LETTERS = "çğıİöşü ÇĞÖŞÜ α ∑ ≤ → Δ ✓ ○ ↻ ✗ ↵ ·"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """New figures and recordings go into a folder of the test."""
    monkeypatch.setenv("SPECDEC_LAB_OUTPUT", str(tmp_path))
    return tmp_path


def line_figure():
    """A small figure with words in it."""
    figure = style.new_figure(3, 2)
    axes = figure.subplots()
    axes.plot([0, 1], [1, 2], **style.METHODS["ngram"].line())
    axes.set_title(LETTERS)
    return figure


def test_every_method_has_its_own_colour_and_marker():
    looks = [(s.color, s.marker) for s in style.METHODS.values()]
    assert len({color for color, _ in looks}) == len({marker for _, marker in looks}) == len(looks)


def test_every_kind_of_token_has_its_own_colour_and_mark():
    assert set(style.TOKEN_COLORS) == set(style.TOKEN_MARKS)
    assert len(set(style.TOKEN_COLORS.values())) == len(style.TOKEN_COLORS)
    assert len(set(style.TOKEN_MARKS.values())) == len(style.TOKEN_MARKS)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_40_all_letters_and_marks_are_in_the_font(kind):
    style.render(line_figure(), kind, dpi=50)  # a missing glyph is a warning, and an error here
    assert matplotlib.rcParams["font.family"] == ["DejaVu Sans"]


def test_34_a_new_figure_is_none_of_pyplot_s():
    for _ in range(25):
        line_figure()
    assert plt.get_fignums() == []


def test_41_the_look_does_not_depend_on_what_was_set_before():
    before = style.render(line_figure(), "svg")
    matplotlib.rcParams.update({"font.size": 20, "svg.hashsalt": None, "font.family": "serif"})
    assert style.render(line_figure(), "svg") == before


def test_every_figure_of_the_course_says_what_is_seen_in_it():
    for slug, draw in FIGURES.items():
        figure = draw(recordings.load(slug))
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        written = slug == "00_promise"  # its finding is a line of the text that it draws
        assert any(titles) or figure.get_suptitle() or written, f"{slug} has no title"


def test_every_stored_figure_is_in_the_registry():
    stored = {path.stem for path in (ROOT / "figures").glob("[0-9]*.png")}
    assert stored <= set(FIGURES) | set(MEASURED)
    assert stored - set(MEASURED) <= set(recordings.slugs())


def test_the_registry_knows_no_other_names():
    assert "00_promise" in FIGURES
    for slug in ("00_nothing", "77_nothing", ""):
        assert slug not in FIGURES
    assert len(FIGURES) == len(list(FIGURES))


def test_the_figures_command_draws_what_is_recorded(elsewhere, monkeypatch, capsys):
    some = {"00_by_k": FIGURES["00_by_k"], "99_new": FIGURES["00_by_k"]}
    monkeypatch.setattr("specdec_lab.study.figures.FIGURES", some)
    monkeypatch.setattr("specdec_lab.study.figures.measured.MEASURED", {})
    assert main(["figures"]) == 0
    drawn = sorted(path.name for path in (elsewhere / "figures").iterdir())
    assert drawn == ["00_by_k.png", "00_by_k.svg"]
    assert "99_new: no numbers recorded yet; run its notebook." in capsys.readouterr().out


def test_saving_writes_both_forms_and_the_numbers(elsewhere):
    picture = style.save_figure(line_figure(), "99_x", {"a": [1, 2], "alt": "A line."}, seed=3)
    assert (elsewhere / "figures/99_x.png").read_bytes() == picture.png
    assert (elsewhere / "figures/99_x.svg").read_bytes().startswith(b"<?xml")
    assert recordings.load("99_x") == {"a": [1, 2], "alt": "A line."}
    assert recordings.origin("99_x")["seed"] == 3
    shown, metadata = picture._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]) == picture.png
    assert shown["text/plain"] == metadata["image/png"]["alt"] == "A line."
    assert metadata["image/png"]["width"] == 300


def test_a_figure_of_the_course_is_drawn_from_what_is_recorded(elsewhere):
    data = {"k": [1, 2], "tau": [1 + 1 / 3, 5 / 3], "accepted": [3, 4], "drafted": [4, 8]}
    picture = style.save_figure(FIGURES["00_by_k"](data), "00_by_k", data, alt="Two curves.")
    assert style.render(FIGURES["00_by_k"](recordings.load("00_by_k"))) == picture.png


def test_a_figure_without_a_description_is_refused(elsewhere):
    with pytest.raises(ValueError, match="Describe figure 99_x"):
        style.save_figure(line_figure(), "99_x", {"a": 1})
    assert not (elsewhere / "figures").exists()
