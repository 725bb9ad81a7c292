"""Every public name is documented and annotated; files and functions stay readable."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from project import ROOT

PACKAGE = ROOT / "specdec_lab"
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def in_files(find: Callable[[Path], list | dict]) -> dict[str, list | dict]:
    """What a function finds, by file; files in which it finds nothing are left out."""
    found = {str(path.relative_to(PACKAGE)): find(path) for path in FILES}
    return {path: faults for path, faults in found.items() if faults}


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


def undocumented(path: Path) -> list[str]:
    """The module and its public names that have no docstring."""
    module = tree(path)
    names = [name for name, node in public(module.body) if not ast.get_docstring(node)]
    return names if ast.get_docstring(module) or not module.body else ["the module", *names]


def long_functions(path: Path) -> dict[str, int]:
    """The functions with too many lines."""
    functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)]
    return {node.name: length(node) for node in functions if length(node) > FUNCTION_LINES}


def test_modules_and_public_names_have_a_docstring():
    assert in_files(undocumented) == {}


def test_public_functions_are_annotated():
    found = in_files(
        lambda path: [t for name, node in public(tree(path).body) for t in unannotated(name, node)]
    )
    assert found == {}


def test_files_are_short():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {path: number for path, number in lines.items() if number > FILE_LINES} == {}


def test_functions_are_short():
    assert in_files(long_functions) == {}


def test_every_public_name_of_the_package_can_be_reached():
    import specdec_lab

    assert specdec_lab.__all__
    for name in specdec_lab.__all__:
        assert getattr(specdec_lab, name).__doc__, name


def test_what_is_missing_or_long_would_be_seen(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def f():\n" + "    x = 1\n" * 70)
    assert undocumented(path) == ["the module", "f"]
    assert long_functions(path) == {"f": 70}


def test_a_missing_annotation_would_be_seen():
    source = "class A:\n    def f(self, x, *rest: int, y: int = 1): ..."
    names = dict(public(ast.parse(source).body))
    assert unannotated("A.f", names["A.f"]) == ["A.f(x)", "A.f -> ?"]
