"""Every public name is documented and annotated; files and functions stay readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import ROOT

PACKAGE = ROOT / "specdec_lab"
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def is_public(name: str) -> bool:
    """Whether a name is meant for others."""
    return not name.startswith("_")


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Public functions and classes, and public methods of public classes."""
    for node in body:
        if isinstance(node, Definition) and is_public(node.name):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def unannotated(name: str, node: Definition) -> list[str]:
    """Arguments and results of a function that have no annotation."""
    if isinstance(node, ast.ClassDef):
        return []
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    arguments += [extra for extra in (node.args.vararg, node.args.kwarg) if extra]
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if "." in name and "staticmethod" not in decorators:
        arguments = arguments[1:]  # self or cls
    found = [f"{name}({argument.arg})" for argument in arguments if not argument.annotation]
    return found if node.returns else [*found, f"{name} -> ?"]


def length(node: Definition) -> int:
    """Lines of a function, its docstring not counted."""
    first = node.body[0]
    documented = ast.get_docstring(node) is not None
    return node.end_lineno - (first.end_lineno if documented else node.lineno)


@each_file
def test_the_module_says_what_it_is(path):
    module = tree(path)
    assert not module.body or ast.get_docstring(module)


@each_file
def test_public_names_have_a_docstring(path):
    assert [name for name, node in public(tree(path).body) if not ast.get_docstring(node)] == []


@each_file
def test_public_functions_are_annotated(path):
    found = [text for name, node in public(tree(path).body) for text in unannotated(name, node)]
    assert found == []


@each_file
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@each_file
def test_functions_are_short(path):
    functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)]
    long = {node.name: length(node) for node in functions if length(node) > FUNCTION_LINES}
    assert long == {}


def test_every_public_name_of_the_package_can_be_reached():
    import specdec_lab

    assert specdec_lab.__all__
    for name in specdec_lab.__all__:
        assert getattr(specdec_lab, name).__doc__, name


def test_a_missing_annotation_would_be_seen():
    source = "class A:\n    def f(self, x, *rest: int, y: int = 1): ..."
    names = dict(public(ast.parse(source).body))
    assert unannotated("A.f", names["A.f"]) == ["A.f(x)", "A.f -> ?"]
