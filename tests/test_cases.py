"""The known faults of others that apply to what exists are tests, and each test says its number."""

import re

from project import ROOT

APPLY = {*range(1, 5), *range(6, 13), *range(14, 22), 23, *range(25, 29), *range(30, 34)}
NAMED = re.compile(r"^def test_(?:(\d\d)_|\w*case_(\d+))", re.MULTILINE)


def test_every_case_that_applies_is_a_test_named_by_its_number():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    found = {int(a or b) for source in sources for a, b in NAMED.findall(source)}
    assert sorted(APPLY - found) == []
