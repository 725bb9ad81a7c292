"""Executes the notebooks: the only writer of their stored outputs, and the check that they hold.

    .venv/bin/python .ci/notebooks.py write [00 02 ...]   execute and store, normalised
    .venv/bin/python .ci/notebooks.py check [00 02 ...]   execute and compare with what is stored

Every notebook runs on a fresh kernel in notebooks/ with SPECDEC_LAB_STATIC=1, so that panels, which
cannot be stored, are left out. Texts are compared, pictures only by their presence. Tags of a cell:
`model` is compared word for word on the reference machine only and by the kinds of its outputs
elsewhere; `volatile` (clocks) is only executed.
"""

import argparse
import difflib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
REFERENCE = ROOT / "data" / "measurements" / "reference.json"

CELL_LIMIT = 60  # seconds a cell may take on two quiet cores
PATIENCE = 3  # a busy or slow machine gets this many times as long before the cell fails
REPORT_FROM = 30  # seconds from which a cell is named in the report

KEPT_METADATA = ("tags", "jupyter", "collapsed")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
EMBEDDED_IMAGE = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+")
MACHINE_PATH = re.compile(r"(?<![\w./:])/(?:home|Users|root|tmp|var|opt|usr|work)/\S*")
OBJECT_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")


class NotebookError(RuntimeError):
    """A notebook does not run to its end; the message names the cell and shows why."""


@dataclass
class Execution:
    """A freshly executed, normalised notebook, what is wrong with it, and its cells' times."""

    notebook: NotebookNode
    complaints: list[str]
    seconds: dict[int, float] = field(default_factory=dict)

    def timing(self) -> str:
        """One sentence on the time: the whole and every cell that took long."""
        text = f"{sum(self.seconds.values()):.0f} s in {len(self.seconds)} cells"
        slow = {cell: s for cell, s in self.seconds.items() if s >= REPORT_FROM}
        for cell, spent in slow.items():
            mark = f", over the limit of {CELL_LIMIT} s" if spent > CELL_LIMIT else ""
            text += f"; cell {cell} took {spent:.0f} s{mark}"
        return text


def paths(prefixes: list[str] | None = None) -> list[Path]:
    """The notebooks in order; only those that begin with one of the prefixes, when given."""
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    if prefixes:
        found = [path for path in found if path.name.startswith(tuple(prefixes))]
    return found


def machine() -> dict[str, str | int]:
    """What the floating-point results of the model depend on."""
    model, flags = platform.processor() or platform.machine(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        facts = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE))
        model, flags = facts.get("model name", model), facts.get("flags", "")
    digest = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()
    return {
        "cpu": model,
        "flags_sha256": digest,
        "cores": os.cpu_count(),
        "torch": importlib.metadata.version("torch"),
    }


def is_reference_machine() -> bool:
    """Whether the stored outputs were written on a machine like this one."""
    return REFERENCE.exists() and json.loads(REFERENCE.read_text()) == machine()


def kernel_environment(ipython_folder: str, output: str | None) -> dict[str, str]:
    """The environment of the kernel: static panels, no hub, nothing of the user's IPython."""
    env = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    if output is not None:
        env["SPECDEC_LAB_OUTPUT"] = output
    return env | {
        "SPECDEC_LAB_STATIC": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "IPYTHONDIR": ipython_folder,
    }


def execute(path: Path, output: str | None = None) -> Execution:
    """Runs a notebook from top to bottom; raises NotebookError when a cell raises or hangs.

    Its figures and recordings go into the project, or into the folder ``output``.
    """
    notebook = nbformat.read(path, as_version=4)
    started, seconds = {}, {}

    def note_start(cell: NotebookNode, cell_index: int) -> None:
        started[cell_index] = time.monotonic()

    def note_end(cell: NotebookNode, cell_index: int, execute_reply: dict) -> None:
        seconds[cell_index] = time.monotonic() - started[cell_index]

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_LIMIT * PATIENCE,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=note_start,
        on_cell_executed=note_end,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="ipython") as ipython_folder:
            client.execute(env=kernel_environment(ipython_folder, output))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{path.name} does not run to its end: {error}") from error
    nbformat.validate(notebook)
    normalise(notebook)
    return Execution(notebook, complaints(notebook), seconds)


def code_cells(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    """The code cells with their number among all cells, as the reports name them."""
    return [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def normalise(notebook: NotebookNode) -> None:
    """Takes out, in place, whatever depends on the machine, the folder or the hour."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: cell.metadata[key] for key in KEPT_METADATA if key in cell.metadata}
        )
    for count, (_, cell) in enumerate(code_cells(notebook), start=1):
        cell.execution_count = count
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            shorten_paths(output)


def merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Neighbouring pieces of one stream as one piece: where a stream is cut is chance."""
    merged = []
    for output in outputs:
        same = merged and output.output_type == "stream" == merged[-1].output_type
        if same and merged[-1].name == output.name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def shorten_paths(output: NotebookNode) -> None:
    """Paths inside the project become relative, in place; the home folder becomes ~."""

    def short(text: str) -> str:
        return text.replace(f"{ROOT}/", "").replace(str(ROOT), ".").replace(str(Path.home()), "~")

    if "text" in output:
        output.text = short(output.text)
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") and isinstance(value, str):
            output.data[kind] = short(value)


def complaints(notebook: NotebookNode) -> list[str]:
    """What a stored notebook must not show, one sentence each."""
    found = []
    for number, cell in code_cells(notebook):
        for output in cell.outputs:
            found += [f"cell {number} {what}" for what in output_complaints(output)]
    return found


def output_complaints(output: NotebookNode) -> list[str]:
    """What is wrong with one output."""
    if output.output_type == "error":
        # also what comes after the cell's end, as when an inline figure fails to draw
        return [f"shows a traceback: {output.ename}: {output.evalue}"]
    if output.output_type == "stream" and output.name == "stderr":
        return [f"writes to stderr: {output.text.strip()[:300]}"]
    found = []
    if WIDGET_VIEW in output.get("data", {}):
        found.append("stores a widget, which is dead on a page: leave it out when static")
    text = readable(output)
    if match := MACHINE_PATH.search(text):
        found.append(f"shows a path of this machine: {match[0]}")
    if match := OBJECT_ADDRESS.search(text):
        found.append(f"shows an address that changes from run to run: {match[0]}")
    return found


def readable(output: NotebookNode) -> str:
    """All the text of an output, embedded pictures replaced by a word."""
    texts = [output.get("text", "")]
    texts += [v for k, v in sorted(output.get("data", {}).items()) if k.startswith("text/")]
    return EMBEDDED_IMAGE.sub("embedded picture", "\n".join(texts).strip())


def is_stderr(output: NotebookNode) -> bool:
    """Whether an output is a warning or the like, which another machine need not repeat."""
    return output.output_type == "stream" and output.name == "stderr"


def shape(cell: NotebookNode) -> list[str]:
    """The kinds of a cell's outputs: what must agree on every machine."""
    outputs = [output for output in cell.outputs if not is_stderr(output)]
    return [" ".join([o.output_type, *sorted(o.get("data", {}))]) for o in outputs]


def differences(stored: NotebookNode, fresh: NotebookNode, same_machine: bool) -> list[str]:
    """Where the stored outputs are not what the cells say now, a readable paragraph each."""
    found = []
    pairs = zip(code_cells(stored), code_cells(fresh), strict=True)
    for (number, old), (_, new) in pairs:
        tags = old.metadata.get("tags", [])
        if "volatile" in tags:
            continue
        if shape(old) != shape(new):
            found.append(f"cell {number} stores outputs {shape(old)} and now gives {shape(new)}")
        elif same_machine or "model" not in tags:
            found += [f"cell {number} now says:\n{text}" for text in text_differences(old, new)]
    return found


def text_differences(old: NotebookNode, new: NotebookNode) -> list[str]:
    """Line by line, how the texts of one cell differ."""
    before, after = (
        [line for output in cell.outputs if not is_stderr(output) for line in lines(output)]
        for cell in (old, new)
    )
    if before == after:
        return []
    return ["\n".join(difflib.unified_diff(before, after, "stored", "now", lineterm="", n=1))]


def lines(output: NotebookNode) -> list[str]:
    """The lines of an output's text."""
    return readable(output).splitlines()


def check(path: Path) -> tuple[Execution, list[str]]:
    """Executes a notebook; returns the run and everything that is not as stored."""
    with tempfile.TemporaryDirectory(prefix="figures") as output:  # the working tree stays clean
        run = execute(path, output=output)
    stored = nbformat.read(path, as_version=4)
    normalise(stored)
    found = [text for text in run.complaints if "writes to stderr" not in text]
    return run, found + differences(stored, run.notebook, is_reference_machine())


def write(path: Path) -> tuple[Execution, list[str]]:
    """Executes a notebook and stores its outputs, unless there is something to complain about."""
    run = execute(path)
    if not run.complaints:
        new = path.with_suffix(".ipynb.new")
        new.write_text(nbformat.writes(run.notebook).rstrip("\n") + "\n", encoding="utf-8")
        new.replace(path)
    return run, run.complaints


def write_reference() -> None:
    """Records this machine as the one whose model outputs are stored."""
    REFERENCE.parent.mkdir(parents=True, exist_ok=True)
    REFERENCE.write_text(json.dumps(machine(), indent=2) + "\n")


def main(arguments: list[str]) -> int:
    """Writes or checks the named notebooks; exit status 1 when one is not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("write", "check"))
    parser.add_argument("names", nargs="*", help="beginnings of file names, as 00; default all")
    options = parser.parse_args(arguments)
    chosen = paths(options.names)
    mixed = options.mode == "write" and chosen != paths() and REFERENCE.exists()
    if mixed and not is_reference_machine():
        print("The stored outputs come from another machine: write all notebooks, not some.")
        return 1
    wrong = 0
    for path in chosen:
        print(f"{path.name} ...", flush=True)
        try:
            run, found = (write if options.mode == "write" else check)(path)
        except NotebookError as error:
            print(error)
            wrong += 1
            continue
        print(f"  {run.timing()}")
        print("".join(f"  {text}\n" for text in found), end="", flush=True)
        wrong += bool(found)
    if options.mode == "write" and chosen and not wrong:
        write_reference()
    print(f"{len(chosen)} notebooks, {wrong} not right.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
