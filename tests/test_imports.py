"""The arrows between the rooms point one way, and what should load without torch does.

study -> training -> proposers -> decoding
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from project import ROOT

PACKAGE = ROOT / "specdec_lab"
ROOMS = ("decoding", "proposers", "training", "study")  # a room sees itself and what stands before
FILES = sorted(PACKAGE.rglob("*.py"))
ANYWHERE_ABOVE_DECODING = {"prompts", "threads"}
TRANSFORMERS_ALLOWED = {
    "decoding/checkpoint.py",  # reads checkpoint, config and tokenizer
    "decoding/text.py",
    "study/measure/peers.py",  # the peer that speeds are compared with
}
IMPORT_NAMES = {"pillow": "PIL"}

NO_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers"}:
            raise ImportError(name + " must not be needed here")

sys.meta_path.insert(0, Blocker())
"""


def module_name(path: Path) -> str:
    """specdec_lab/decoding/tree.py -> specdec_lab.decoding.tree"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree but those under `if TYPE_CHECKING`, which only annotate."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from executed(child)


@cache
def imports(path: Path, walk: Callable = ast.walk) -> set[str]:
    """Full names of all that a file imports, relative imports resolved."""
    package = (
        module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    )
    found = set()
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            origin = (base + (node.module or "")).rstrip(".")
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def own(path: Path) -> set[tuple[str, ...]]:
    """The imports from this package, as parts after specdec_lab."""
    names = {tuple(name.split(".")) for name in imports(path)}
    return {name[1:] for name in names if name[0] == "specdec_lab"}


def room(path: Path) -> str:
    """The room a file lies in; files at the top of the package are 'top'."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "top"


def foreign(path: Path) -> set[str]:
    """Third-party packages a file needs when it is loaded or run."""
    first = {name.split(".")[0] for name in imports(path, executed)}
    return first - set(sys.stdlib_module_names) - {"specdec_lab"}


def wrong_arrows(path: Path) -> list[str]:
    """Imports of a file that go up the house."""
    here = room(path)
    if here == "top":
        return []
    allowed = set(ROOMS[: ROOMS.index(here) + 1])
    if here != "decoding":
        allowed |= ANYWHERE_ABOVE_DECODING
    return [".".join(name) for name in own(path) if not name or name[0] not in allowed]


def test_imports_point_down_the_house():
    assert {room(path) for path in FILES} <= {*ROOMS, "top"}
    found = {str(path.relative_to(PACKAGE)): wrong_arrows(path) for path in FILES}
    assert {path: arrows for path, arrows in found.items() if arrows} == {}


def test_transformers_is_read_in_few_places():
    readers = {path for path in FILES if "transformers" in foreign(path)}
    assert {path.relative_to(PACKAGE).as_posix() for path in readers} <= TRANSFORMERS_ALLOWED


def test_prompts_stands_above_nothing_but_decoding():
    path = PACKAGE / "prompts.py"
    assert not path.exists() or {name[0] for name in own(path)} <= {"decoding"}


def test_every_package_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {Requirement(line).name for line in project["dependencies"]}
    declared = {IMPORT_NAMES.get(name, name) for name in declared}
    come_along = {"huggingface_hub", "tqdm", "IPython"}  # with transformers and with jupyterlab
    used = set().union(*(foreign(path) for path in FILES))
    assert used - come_along <= declared


@pytest.mark.parametrize("module", ["specdec_lab", "specdec_lab.study.theory"])
def test_what_needs_no_torch_loads_without_it(module):
    place = ROOT.joinpath(*module.split("."))
    if not (place.is_dir() or place.with_suffix(".py").exists()):
        return  # the room is not built yet
    code = f"{NO_TORCH}\nimport {module}"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_wrong_arrow_would_be_seen(tmp_path, monkeypatch):
    folder = tmp_path / "specdec_lab" / "decoding"
    folder.mkdir(parents=True)
    path = folder / "bad.py"
    path.write_text(
        "from ..proposers import base\nfrom specdec_lab import generate\nimport torch\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "specdec_lab")
    assert sorted(wrong_arrows(path)) == ["generate", "proposers.base"]
