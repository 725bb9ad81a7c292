"""The README says only what is true: its examples run, its files and targets exist."""

import json
import re

import pytest

from project import ROOT
from specdec_lab.study.measure.summary import without_prompt

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.model
def test_the_examples_run(capsys):
    names: dict = {}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)
    tokens = names["generate"](names["target"], [names["ids"]], names["Echo"](), max_new_tokens=8)
    assert tokens.tokens[0] == names["plain"].tokens[0][:8]
    assert capsys.readouterr().out.strip()


def test_every_file_and_target_named_exists():
    for path in re.findall(
        r"`((?:tests|figures|notebooks)/[\w./]+)`|\]\((figures/[\w.]+)\)", README
    ):
        assert (ROOT / "".join(path)).exists()
    for name in re.findall(r"^\| `(\d\d_\w+)` \|", README, re.MULTILINE):
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    named = set(re.findall(r"make (\w+)", README)) | {"setup", "figures", "notebooks", "lint"}
    assert named <= set(targets.split())


def test_the_measured_ratios_are_those_of_the_recording():
    path = re.search(r"`(data/measurements/[\w./-]+)`", README)[1]
    domains = json.loads((ROOT / path).read_text(encoding="utf-8"))["data"]["domains"]

    def span(name: str) -> str:
        values = [domain["ratios"][name]["median"] for domain in domains.values()]
        return f"{min(values):.1f} to {max(values):.1f}"

    text = " ".join(README.split())
    assert f"a draft model with k = 4 {span('draft_over_assisted_k')} times" in text
    assert f"plain decoding runs {span('plain_over_transformers')} times" in text
    assert f"with k = 4 {span('ngram_over_lookup')} times" in text
    assert span("ngram_over_own_plain").replace(" to", " (chat) to") in text


def test_the_ratios_of_another_processor_are_those_of_its_recording():
    path = re.findall(r"`(data/measurements/[\w./-]+/peers.json)`", README)[1]
    domains = json.loads((ROOT / path).read_text(encoding="utf-8"))["data"]["domains"]
    text = " ".join(README.split("How much the engine gains")[1].split("\n\n")[0].split())
    for words, name in (
        ("plain decoding runs {} times as fast as transformers", "plain_over_transformers"),
        ("n-gram {} times as fast as prompt lookup", "ngram_over_lookup"),
        ("the draft model {} times as fast as assisted", "draft_over_assisted_k"),
    ):
        values = [domain["ratios"][name]["median"] for domain in domains.values()]
        assert words.format(f"{min(values):.1f} to {max(values):.1f}") in text


def test_the_text_of_all_arms_is_the_same_if_the_readme_says_so():
    path = re.search(r"`(data/measurements/[\w./-]+)`", README)[1]
    domains = json.loads((ROOT / path).read_text(encoding="utf-8"))["data"]["domains"].values()
    same = all(count == d["prompts"] for d in domains for count in d["same_text"].values())
    assert ("All texts are the same, token by token." in " ".join(README.split())) == same


def test_the_other_libraries_are_those_of_the_recording():
    folder = re.search(r"`(data/measurements/[\w-]+)/", README)[1]
    data = json.loads((ROOT / folder / "outside.json").read_text(encoding="utf-8"))["data"]
    flashspec = [d["ratios"]["ngram_over_flashspec"]["median"] for d in data["domains"].values()]
    most = list(data["proposals"])[-1]
    micro = data["proposals"][most]["ours"]["median"]
    ratio = data["proposal_ratios"][most]["arctic"]
    text = " ".join(README.split())
    assert f"n-gram runs {min(flashspec):.1f} to {max(flashspec):.1f} times" in text
    assert f"behind {int(most):,} tokens of history takes {micro:.0f} microseconds" in text
    assert f"{ratio:.1f} times what Arctic's C++ takes" in text


TREES = {"eagle 2": "EAGLE-2's trees", "eagle 3 tree": "EAGLE-3's trees", "mtp tree": "its trees"}


def test_the_methods_and_the_batch_are_those_of_the_recordings():
    folder = ROOT / re.search(r"`(data/measurements/[\w-]+)/", README)[1]
    decode, batch = (
        json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))["data"]
        for part in ("decode", "batch")
    )
    cells = {name: cell["scopes"]["all"] for name, cell in decode["cells"].items()}
    ngram, twin = cells["ngram, k = 4"], cells["draft_model int4, k = 4"]
    crowd = batch["batches"]["16"]["ngram, k = 4"]
    text = " ".join(README.split())
    assert f"n-gram with k = 4 runs {ngram['speedup']:.1f} times as fast" in text
    assert f"as the draft, k = 4, {twin['speedup']:.1f} times" in text
    alone = without_prompt(
        decode["cells"]["draft_model int4, k = 4"], decode["cells"]["plain"], "all"
    )
    assert f"that twin is {alone:.1f} times as fast" in text
    mtp = decode["cells"]["mtp, k = 3"]["scopes"]
    chat, code, json_ = (mtp[domain]["speedup"] for domain in ("chat", "code", "json"))
    said = (
        f"k = 3 runs {chat:.1f} times as fast on chat, {code:.1f} on code and {json_:.1f} on JSON"
    )
    assert said in text
    heads = [name for name in cells if name.startswith(("mtp", "eagle", "mlp", "pard"))]
    best = max(heads, key=lambda name: cells[name]["tau"])
    who, most = TREES[best.partition(",")[0]], cells[best]["tau"]
    assert f"{who} write the most tokens per forward of them, {most:.1f}." in text
    assert f"down to {crowd['speedup']:.2f} of plain decoding" in text
    assert (decode["prompts"], len(decode["domains"])) == (3, 5)
    assert f"{decode['max_new_tokens']} tokens" in text


def test_every_notebook_is_in_the_table():
    listed = set(re.findall(r"^\| `(\d\d_\w+)` \|", README, re.MULTILINE))
    assert listed == {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
