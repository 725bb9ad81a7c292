"""Carries a large file to a machine that takes little at a time: in parts, each with its hash.

    python .ci/parcel.py split FILE FOLDER --parts 2    FOLDER/part-1, FOLDER/part-2, ...
    python .ci/parcel.py check FOLDER                   says which parts have come, whole
    python .ci/parcel.py join FOLDER FILE               the file again

Needs nothing but Python, as it runs before anything is set up.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

BUFFER = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Slip:
    """What lies beside a piece: which one it is, its hash, and the hash of the whole file."""

    number: int
    of: int
    sha256: str
    whole_sha256: str


def split(file: Path, folder: Path, parts: int) -> list[Path]:
    """Cut a file into ``parts`` folders of nearly equal size; returns them."""
    size, whole = file.stat().st_size, sha256_of(file)
    most = -(-size // parts)
    folders = [folder / f"part-{number}" for number in range(1, parts + 1)]
    with file.open("rb") as stream:
        for number, part in enumerate(folders, 1):
            part.mkdir(parents=True, exist_ok=True)
            data = stream.read(most)
            (part / "piece").write_bytes(data)
            slip = Slip(number, parts, hashlib.sha256(data).hexdigest(), whole)
            (part / "slip.json").write_text(json.dumps(asdict(slip)), encoding="utf-8")
    return folders


def whole_parts(folder: Path) -> Iterator[tuple[Slip, Path]]:
    """The slips and pieces that have come, in order; ValueError for a damaged one."""
    slips = []
    for path in folder.glob("part-*/slip.json"):
        slip = Slip(**json.loads(path.read_text(encoding="utf-8")))
        piece = path.with_name("piece")
        if not piece.is_file() or sha256_of(piece) != slip.sha256:
            raise ValueError(f"{piece} is damaged: carry {path.parent} once more.")
        slips.append((slip, piece))
    yield from sorted(slips, key=lambda pair: pair[0].number)


def join(folder: Path, file: Path) -> Path:
    """Put the parts together; ValueError where one is missing or they are not of one file."""
    parts = list(whole_parts(folder))
    wholes = {(slip.of, slip.whole_sha256) for slip, _ in parts}
    if len(wholes) != 1:
        raise ValueError(f"{folder} holds parts of {len(wholes)} files, not of one.")
    ((number, whole),) = wholes
    missing = set(range(1, number + 1)) - {slip.number for slip, _ in parts}
    if missing:
        raise ValueError(f"Part {min(missing)} of {number} has not come to {folder}.")
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.partial")
    with unfinished.open("wb") as stream:
        for _, piece in parts:
            stream.write(piece.read_bytes())
    if sha256_of(unfinished) != whole:
        raise ValueError(f"The parts in {folder} do not give the file that was split.")
    return unfinished.replace(file)


def sha256_of(file: Path) -> str:
    """Hex digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Runs one command; exit status 1 with a sentence where it can't be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    cut = commands.add_parser("split")
    cut.add_argument("file", type=Path)
    cut.add_argument("folder", type=Path)
    cut.add_argument("--parts", type=int, default=2)
    commands.add_parser("check").add_argument("folder", type=Path)
    put = commands.add_parser("join")
    put.add_argument("folder", type=Path)
    put.add_argument("file", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.command == "split":
            print(*split(args.file, args.folder, args.parts), sep="\n")
        elif args.command == "check":
            for slip, piece in whole_parts(args.folder):
                print(f"{piece.parent}: part {slip.number} of {slip.of} is whole.")
        else:
            print(join(args.folder, args.file))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
