"""How much of each method's drafts is taken, on many prompts, for every k at once; no clock.

Plain decoding has written the texts (`known_texts`), and each method drafts at every place of them
(`forced_drafts`), eight texts together. So one pass tells the steps that decoding would take, for
every number of drafted tokens, and it may run beside other jobs. What a step costs is measured by
``decode``; `best_k` puts both together.

Where drafts multiply in 8 bits, a row differs a little by its company. It evens out: of 600 steps
of a draft model one more or less, whether texts were drafted for alone or eight together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.trace import repeated_ngram_share
from specdec_lab.prompts import Prompt, load_prompts
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.weights import shipped_hashes
from specdec_lab.study.expected_steps import count_steps
from specdec_lab.study.forced_drafts import Acceptance, KnownTexts, acceptance_of, read_texts
from specdec_lab.study.measure.acceptance_summary import overview, summarise
from specdec_lab.study.measure.cells import FILE, Cell, read_plan
from specdec_lab.study.measure.known_texts import ROWS, known_texts
from specdec_lab.study.measure.sweep import what_is_missing

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target

MOST = 6  # drafted tokens of a chain
DOMAINS = (
    *("chat", "code", "json", "creative", "quotation"),
    *("code_edit", "copy", "maths", "summary"),
)


def settings(quick: bool, path: Path = FILE) -> dict[str, object]:
    """Every method of the file of cells with its numbers of drafted tokens, and which weights are
    there.
    """
    much = {"domains": list(DOMAINS), "prompts": 10, "sampled_prompts": 3, "max_new_tokens": 64}
    little = {"domains": ["chat", "code"], "prompts": 1, "sampled_prompts": 1, "max_new_tokens": 16}
    return {
        "methods": _methods(read_plan(path).cells),
        "temperatures": [0.0, 0.5, 1.0],
        "turkish": ["chat", "code"],
        "k": MOST,
        "seed": 0,
        "weights": shipped_hashes(),
        **(little if quick else much),
    }


def _methods(cells: Sequence[Cell]) -> dict[str, dict]:
    """By label: the config, and the greedy numbers of drafted tokens."""
    found: dict[str, dict] = {}
    for cell in cells:
        if not cell.is_plain and not cell.temperature:
            entry = found.setdefault(cell.label, {"config": cell.config, "ks": []})
            entry["ks"].append(cell.k)
    return found


def cells(target: Target, settings: Mapping) -> dict[str, Callable[[], dict]]:
    """A cell for each method at each temperature."""
    drafting = Drafting(target, settings)
    return {
        name_of(label, temperature): lambda label=label, t=temperature: drafting.run(label, t)
        for temperature in settings["temperatures"]
        for label in settings["methods"]
    }


def name_of(label: str, temperature: float) -> str:
    """The name of a cell."""
    return f"{label}, T = {temperature:g}"


class Drafting:
    """Methods on the texts of the settings; a proposer is loaded once, and so are the texts of a
    temperature, until another one is asked for.
    """

    def __init__(self, target: Target, settings: Mapping) -> None:
        self.target, self.settings = target, settings
        self._proposers: dict[str, Any] = {}
        self._read: dict[float, list[tuple[Sequence[Prompt], KnownTexts]]] = {}

    def run(self, label: str, temperature: float) -> dict[str, object]:
        """What became of a method's drafts, prompt by prompt, for every k of ``ks``, and whether
        they are trees; or ``missing``, a sentence, where it can't draft.
        """
        proposer = self._proposer(label)
        if isinstance(proposer, OSError):
            return {"missing": what_is_missing(proposer)}
        if not _drafts_trees(proposer):
            most = min(self.settings["k"], getattr(proposer, "max_k", None) or self.settings["k"])
            return self._entries(proposer, temperature, [range(1, most + 1)])
        if temperature:
            return {"missing": "A sampled tree can't be judged along a text."}
        return self._entries(proposer, 0.0, [[k] for k in self.settings["methods"][label]["ks"]])

    def _entries(
        self, proposer: Any, temperature: float, passes: Sequence[Sequence[int]]
    ) -> dict[str, object]:
        """An entry for each prompt. A pass drafts for the largest of its numbers: a chain of fewer
        tokens is the beginning of it, a tree of fewer nodes is another tree.
        """
        found = [
            [
                entry
                for group, texts in self._texts(temperature)
                for entry in self._judged(proposer, group, texts, temperature, ks)
            ]
            for ks in passes
        ]
        prompts = [
            {**entries[-1], "steps": [steps for entry in entries for steps in entry["steps"]]}
            for entries in zip(*found, strict=True)
        ]
        ks = [k for ks in passes for k in ks]
        return {"ks": ks, "tree": _drafts_trees(proposer), "prompts": prompts}

    def _judged(
        self,
        proposer: Any,
        group: Sequence[Prompt],
        texts: KnownTexts,
        temperature: float,
        ks: Sequence[int],
    ) -> Iterator[dict[str, object]]:
        """The entries of a group of prompts."""
        found = acceptance_of(proposer, texts, max(ks), Sampling(temperature=temperature))
        for row, prompt in enumerate(group):
            yield {
                "domain": prompt.domain,
                "prompt": prompt.name,
                "language": prompt.language,
                **_counted(found, texts, row, ks, self.target.eos_ids),
                "cap": _cap(texts, row, getattr(proposer, "vocab", None)),
            }

    def _proposer(self, label: str) -> Any:
        """The proposer, or the error that says what it lacks."""
        if label not in self._proposers:
            try:
                config = self.settings["methods"][label]["config"]
                self._proposers[label] = load_proposer(config, self.target)
            except OSError as error:
                self._proposers[label] = error
        return self._proposers[label]

    def _groups(self, temperature: float) -> list[Sequence[Prompt]]:
        """All prompts, as many together as rows of low-bit products may be, short ones first."""
        number = self.settings["sampled_prompts" if temperature else "prompts"]
        prompts = [
            prompt
            for domain in self.settings["domains"]
            for language in ("en", "tr")
            if language == "en" or (domain in self.settings["turkish"] and not temperature)
            for prompt in load_prompts(domain, language)[:number]
        ]
        ordered = sorted(prompts, key=lambda prompt: len(prompt.ids(self.target)))
        return [ordered[start : start + ROWS] for start in range(0, len(ordered), ROWS)]

    def _texts(self, temperature: float) -> list[tuple[Sequence[Prompt], KnownTexts]]:
        """All groups with their texts, and the states that any of the methods wants."""
        if temperature not in self._read:
            self._read = {}  # frees the laws of another temperature
            groups = self._groups(temperature)
            self._read[temperature] = [(g, self._known(g, temperature)) for g in groups]
        return self._read[temperature]

    def _known(self, group: Sequence[Prompt], temperature: float) -> KnownTexts:
        loaded = [self._proposer(label) for label in self.settings["methods"]]
        layers = {layer for one in loaded for layer in getattr(one, "hidden_layers", ())}
        how = (self.settings["max_new_tokens"], temperature, self.settings["seed"])
        answers = known_texts(self.target, group, *how)
        prompts = [prompt.ids(self.target) for prompt in group]
        sampling = Sampling(temperature=temperature)
        return read_texts(self.target, prompts, answers, sorted(layers), sampling)


def _drafts_trees(proposer: Any) -> bool:
    return bool(getattr(proposer, "shape", None) or getattr(proposer, "tree", False))


def _counted(
    found: Acceptance, texts: KnownTexts, row: int, ks: Sequence[int], eos_ids: Sequence[int]
) -> dict[str, object]:
    """The numbers of one text: expected ``steps`` for every k, and by position, at the largest k,
    how many tokens were ``judged`` and ``accepted``; ``overlap`` by position, over all places.
    """
    answer = texts.tokens[row, texts.prompt_lengths[row] : texts.lengths[row]].tolist()
    chances, drafted = found.chances[row, : len(answer)].tolist(), found.drafted[row].tolist()
    steps = [count_steps(chances, drafted, k, answer[-1] in eos_ids) for k in ks]
    shares = None if found.overlap is None else found.overlap[row, : len(answer)].nanmean(0)
    return {
        "tokens": len(answer),
        "rep4": repeated_ngram_share(answer),
        "steps": [one.steps for one in steps],
        "judged": steps[-1].judged,
        "accepted": steps[-1].accepted,
        "overlap": None if shares is None else [None if x != x else x for x in shares.tolist()],
    }


def _cap(texts: KnownTexts, row: int, vocab: Any) -> float | None:
    """The most that a draft vocabulary lets acceptance be on a text: the share of greedy tokens
    that can be drafted, or the mean mass of those; None without one.
    """
    if vocab is None:
        return None
    answer = texts.tokens[row, texts.prompt_lengths[row] : texts.lengths[row]]
    if texts.target_probs is None:
        return float((vocab.to_draft(answer) >= 0).double().mean())
    return vocab.coverage(texts.target_probs[row, : len(answer)]).mass


def summary(settings: Mapping, results: Mapping[str, dict]) -> dict[str, object]:
    """What is recorded: by method and temperature the numbers of every prompt, and `summarise`."""
    methods = {label: {**entry, "temperatures": {}} for label, entry in settings["methods"].items()}
    for temperature in settings["temperatures"]:
        for label, method in methods.items():
            result = results[name_of(label, temperature)]
            method["temperatures"][f"{temperature:g}"] = result
    how = {name: value for name, value in settings.items() if name != "methods"}
    return how | {"methods": summarise(methods)}


def table(data: Mapping) -> str:
    """Tokens per forward by domain, what beats copying, and the overlap by temperature."""
    return overview(data)
