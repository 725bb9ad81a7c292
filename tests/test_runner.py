"""The notebook runner turns red when it should: the tests of the test harness."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from project import ROOT, load_ci

runner = load_ci("notebooks")

BROKEN_FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title(r'$\\frac{$');"


def cell(*outputs, tags=()):
    """A code cell that stores these outputs."""
    return new_code_cell("pass", outputs=list(outputs), metadata={"tags": list(tags)})


def printed(text, name="stdout"):
    """What print() leaves in a notebook."""
    return new_output("stream", name=name, text=text)


def shown(**data):
    """What display() leaves in a notebook: png="..." and plain="..."."""
    kinds = {"png": "image/png", "plain": "text/plain", "html": "text/html"}
    return new_output("display_data", data={kinds[key]: value for key, value in data.items()})


def compare(old, new, same_machine=True):
    """The differences of two notebooks of one cell each."""
    pair = [new_notebook(cells=[new_markdown_cell("#"), one]) for one in (old, new)]
    for notebook in pair:
        runner.normalise(notebook)
    return runner.differences(*pair, same_machine)


def save(folder, *sources):
    """A notebook file of these code cells."""
    path = folder / "trial.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


@pytest.mark.notebook
def test_43_a_figure_that_fails_to_draw_after_its_cell_is_found(tmp_path):
    run = runner.execute(save(tmp_path, BROKEN_FIGURE, "print('the kernel goes on')"))
    assert any("cell 0 shows a traceback" in text for text in run.complaints)


@pytest.mark.notebook
def test_a_raising_cell_is_named_with_its_error(tmp_path):
    with pytest.raises(runner.NotebookError, match="ZeroDivisionError"):
        runner.execute(save(tmp_path, "a = 1", "a / 0"))


@pytest.mark.notebook
def test_writing_stores_a_normal_form_and_checking_finds_a_change(tmp_path):
    source = "import os\nprint(os.environ['SPECDEC_LAB_STATIC'], 'MPLBACKEND' in os.environ)"
    path = save(tmp_path, source, "6 * 7")
    _, found = runner.write(path)
    stored = nbformat.read(path, as_version=4)
    assert found == []
    assert [c.execution_count for c in stored.cells] == [1, 2]
    assert stored.metadata.kernelspec.name == "python3"
    assert set(stored.metadata) == {"kernelspec", "language_info"}
    assert stored.cells[0].outputs[0].text == "1 True\n"
    stored.cells[1].outputs[0].data["text/plain"] = "43"
    nbformat.write(stored, path)
    _, found = runner.check(path)
    assert len(found) == 1
    assert "-43" in found[0]
    assert "+42" in found[0]


@pytest.mark.notebook
def test_checking_sends_figures_and_recordings_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "NOTEBOOKS", tmp_path)
    path = save(tmp_path, "import os\nprint('SPECDEC_LAB_OUTPUT' in os.environ)")
    assert runner.write(path)[1] == []
    _, found = runner.check(path)
    assert len(found) == 1
    assert "-False" in found[0]
    assert "+True" in found[0]


def test_a_changed_text_is_a_difference():
    found = compare(cell(printed("tau = 2.31\n")), cell(printed("tau = 2.32\n")))
    assert len(found) == 1
    assert "cell 1" in found[0]


def test_the_same_text_cut_at_other_places_is_none():
    assert compare(cell(printed("a\nb\n")), cell(printed("a\n"), printed("b\n"))) == []


def test_pictures_count_by_presence():
    one, other = cell(shown(png="AA=="), printed("x")), cell(shown(png="BB=="), printed("x"))
    assert compare(one, other) == []
    assert compare(one, cell(printed("x"))) != []


def test_a_picture_inside_html_counts_by_presence_and_its_words_count():
    page = '<img src="data:image/png;base64,{}"> {}'
    one = cell(shown(html=page.format("AA==", "k = 4")))
    assert compare(one, cell(shown(html=page.format("BB==", "k = 4")))) == []
    assert compare(one, cell(shown(html=page.format("AA==", "k = 5")))) != []


def test_model_cells_are_compared_by_structure_on_another_machine():
    one, other = (cell(printed(word), tags=["model"]) for word in ("Paris", "London"))
    assert compare(one, other, same_machine=True) != []
    assert compare(one, other, same_machine=False) == []
    assert compare(one, cell(tags=["model"]), same_machine=False) != []


def test_other_cells_are_compared_word_for_word_everywhere():
    assert compare(cell(printed("1")), cell(printed("2")), same_machine=False) != []


def test_clock_cells_are_only_executed():
    assert compare(cell(printed("3 s"), tags=["volatile"]), cell(tags=["volatile"])) == []


@pytest.mark.parametrize(
    ("output", "word"),
    [
        (printed("UserWarning: old", name="stderr"), "stderr"),
        (new_output("error", ename="ValueError", evalue="bad", traceback=[]), "traceback"),
        (printed(f"saved to {'/'}home/somebody/x.png"), "path of this machine"),
        (printed("<object at 0x7f00aa11>"), "address"),
        (new_output("display_data", data={runner.WIDGET_VIEW: {}}), "widget"),
    ],
)
def test_what_must_not_be_stored_is_refused(output, word):
    (complaint,) = runner.output_complaints(output)
    assert word in complaint


def test_paths_inside_the_project_become_relative():
    output = printed(f"saved {ROOT}/figures/00_start.png")
    runner.shorten_paths(output)
    assert output.text == "saved figures/00_start.png"


def test_slow_cells_are_named():
    run = runner.Execution(None, [], {3: 0.5, 4: 31.0, 9: 75.0})
    assert (
        run.timing()
        == "106 s in 3 cells; cell 4 took 31 s; cell 9 took 75 s, over the limit of 60 s"
    )
