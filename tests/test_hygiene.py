"""What stands in the repository: form of the stored notebooks, figures, paths, addresses.

The rules of a notebook are those of the course's house style; nothing is executed here.
"""

import json
import re
import statistics
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from project import ROOT

TOP = {
    *("notebooks", "specdec_lab", "data", "figures", "tests", ".ci"),
    *("environment.yml", "pyproject.toml", "Makefile", "LICENSE", "README.md", "README.tr.md"),
}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DATA_LIMIT_MB = 48
MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:work|farm|root|tmp|home|Users)/\w+")
FIGURE_NAME = r"\d\d_[a-z0-9]+(?:_[a-z0-9]+)*"
SAVED = re.compile(rf"""(?:save_figure\([^)]*["']|figures/)({FIGURE_NAME})""")
LONG_FLOAT = re.compile(r"(?<![\w.])\d+\.\d{6,}(?![\w.])")


@cache
def tracked() -> list[Path]:
    """The files under version control that exist in the working tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@cache
def text_of(path: Path) -> str:
    """The text of a file, or nothing for a binary one."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def load(path: Path) -> dict:
    """A notebook as JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    """The source of a cell as one text."""
    return "".join(cell["source"])


def cells(path: Path, kind: str) -> list[dict]:
    """The cells of one kind, code or markdown."""
    return [cell for cell in load(path)["cells"] if cell["cell_type"] == kind]


def headings(path: Path) -> list[tuple[int, str]]:
    """Level and text of every heading, code fences left out."""
    text = "\n\n".join(source(cell) for cell in cells(path, "markdown"))
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [(len(marks), words) for marks, words in re.findall(r"^(#+) +(.+)$", text, re.MULTILINE)]


def code_lengths(path: Path) -> list[int]:
    """Lines of every code cell, blank ones not counted."""
    return [
        sum(bool(line.strip()) for line in source(cell).splitlines())
        for cell in cells(path, "code")
    ]


def outputs(path: Path) -> list[dict]:
    """All stored outputs of a notebook."""
    return [output for cell in cells(path, "code") for output in cell["outputs"]]


def output_text(path: Path) -> str:
    """All plain text that a notebook's outputs show."""
    texts = []
    for output in outputs(path):
        texts.append("".join(output.get("text", "")))
        texts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(texts)


def claimed_figures(path: Path) -> set[str]:
    """The figures that a notebook says it writes."""
    return {name for cell in load(path)["cells"] for name in SAVED.findall(source(cell))}


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_the_course_begins_with_notebook_00_and_has_no_number_twice():
    numbers = [path.name[:2] for path in NOTEBOOKS]
    assert NOTEBOOKS
    assert NOTEBOOKS[0].name == "00_start_here.ipynb"
    assert len(set(numbers)) == len(numbers)


@each_notebook
def test_name(path):
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", path.name)


@each_notebook
def test_one_title_that_comes_first_and_headings_in_order(path):
    levels = [level for level, _ in headings(path)]
    assert load(path)["cells"][0]["cell_type"] == "markdown"
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@each_notebook
def test_box_of_goals_needs_and_time(path):
    opening = "\n".join(source(cell) for cell in load(path)["cells"][:4]).lower()
    for words in ("you will be able to", "you need", "time", "writes"):
        assert words in opening, f"the opening box lacks '{words}'"


@each_notebook
def test_takeaways_exercises_and_references_close_it(path):
    text = "\n".join(source(cell) for cell in load(path)["cells"])
    titles = " ".join(words.lower() for _, words in headings(path))
    assert "**Takeaway" in text
    for words in ("takeaways", "exercises", "references"):
        assert words in titles, f"no section '{words}'"


@each_notebook
def test_share_of_prose(path):
    share = len(cells(path, "markdown")) / len(load(path)["cells"])
    assert 0.45 <= share <= 0.65, f"{share:.0%} of the cells are markdown"


@each_notebook
def test_code_cells_are_short_and_none_is_empty(path):
    lengths = code_lengths(path)
    assert min(lengths) >= 1
    assert statistics.median(lengths) <= 6
    assert max(lengths) <= 30


@each_notebook
def test_size(path):
    assert path.stat().st_size <= 500_000


@each_notebook
def test_executed_from_top_to_bottom(path):
    counts = [cell["execution_count"] for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1)), "run make notebooks"
    assert outputs(path), "run make notebooks"


@each_notebook
def test_no_traceback_no_warning(path):
    assert not [o["ename"] for o in outputs(path) if o["output_type"] == "error"]
    assert not [o["text"] for o in outputs(path) if o.get("name") == "stderr"]


@each_notebook
def test_38_no_widget_is_stored(path):
    assert "widgets" not in load(path)["metadata"]
    assert not [o for o in outputs(path) if any("widget" in kind for kind in o.get("data", {}))]


@each_notebook
def test_43_the_kernel_is_python3_and_nothing_of_the_author(path):
    metadata = load(path)["metadata"]
    assert set(metadata) == {"kernelspec", "language_info"}
    assert metadata["kernelspec"]["name"] == "python3"
    assert load(path)["nbformat"] == 4
    allowed = {"tags", "jupyter", "collapsed"}
    assert all(set(cell["metadata"]) <= allowed for cell in load(path)["cells"])


@each_notebook
def test_no_raw_tensor_and_few_digits(path):
    assert "tensor(" not in output_text(path)
    assert LONG_FLOAT.findall(output_text(path)) == []


@each_notebook
def test_pictures_of_the_text_have_a_description(path):
    for cell in cells(path, "markdown"):
        assert "![](" not in source(cell)
        assert all("alt=" in tag for tag in re.findall(r"<img[^>]*>", source(cell)))


@each_notebook
def test_claimed_figures_are_there(path):
    missing = [
        f"{name}.{kind}"
        for name in sorted(claimed_figures(path))
        for kind in ("png", "svg")
        if not (ROOT / "figures" / f"{name}.{kind}").exists()
    ]
    assert not missing


def test_every_figure_belongs_to_a_notebook_and_has_both_forms():
    drawn = {path.stem for path in (ROOT / "figures").glob("[0-9]*.*")}
    forms = {path.name for path in (ROOT / "figures").glob("[0-9]*.*")}
    assert forms == {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    claimed = set().union(*(claimed_figures(path) for path in NOTEBOOKS), set())
    assert drawn <= claimed


def test_the_top_folder_is_the_agreed_one():
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP


def test_no_file_names_a_path_of_one_machine():
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in tracked()
        if path.suffix != ".svg" and (match := MACHINE_PATH.search(text_of(path)))
    }
    assert not found


def test_no_build_file_names_an_address():
    build = ["Makefile", "pyproject.toml", "environment.yml"]
    files = [ROOT / name for name in build] + [p for p in tracked() if p.parent.name == ".ci"]
    addresses = re.compile(r"https?://\S+|pypi\.org|pythonhosted|download\.pytorch")
    assert not {path.name: found for path in files if (found := addresses.findall(text_of(path)))}


def test_nothing_built_or_left_over_is_tracked():
    waste = re.compile(r"\.pyc$|\.orig$|\.rej$|\.log$|\.ipynb_checkpoints|\.new$|~$")
    assert not [path for path in tracked() if waste.search(str(path.relative_to(ROOT)))]


def test_data_stays_small():
    size = sum(path.stat().st_size for path in tracked() if ROOT / "data" in path.parents)
    assert size <= DATA_LIMIT_MB * 1e6
