"""What every figure of the course must be."""

from matplotlib.figure import Figure

from specdec_lab.study.figures.style import render


def check_figure(figure: Figure) -> None:
    """It can be drawn, and a title says what is seen in it."""
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert any(titles) or figure.get_suptitle()
    assert render(figure, "png", 40).startswith(b"\x89PNG")
