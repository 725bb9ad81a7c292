"""What a long measurement shows while it runs, and the table it ends with."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm


class Progress:
    """A bar on a terminal; elsewhere (a log, a pipe) a line for every cell, on stderr."""

    def __init__(self, part: str, num_cells: int) -> None:
        self._part, self._num_cells, self._num_done = part, num_cells, 0
        on_terminal = sys.stderr.isatty()
        self._bar = tqdm(total=num_cells, desc=part, unit="cell") if on_terminal else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, cell: str, seconds: float) -> None:
        """One more cell is finished."""
        self._num_done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(cell)
            self._bar.update()
        else:
            place = f"{self._part} {self._num_done}/{self._num_cells}"
            print(f"{place}: {cell} ({seconds:.1f} s)", file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    """Aligned columns: words to the left, numbers to the right, "-" where there is none."""
    cells = [list(map(_shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    words = [any(isinstance(row[i], str) for row in rows) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = zip(row, widths, words, strict=True)
        return "  ".join(c.ljust(w) if is_word else c.rjust(w) for c, w, is_word in parts).rstrip()

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, cells)])


def _shown(value: str | float | None) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
