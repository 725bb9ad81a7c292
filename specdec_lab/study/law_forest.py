"""Two models' laws on a tree of texts, at several places: recorded once, read at any temperature.

At a *place* of a text the drafter's likeliest continuations form a tree. Its *entries* are texts:
the place itself, and continuations whose own next tokens are known too. The request samples among
the `TOP_K` likeliest tokens, so a few numbers hold the whole laws: of every entry the drafter's
`TOP_K` likeliest next tokens, its *children*, and the target's, with their logarithms.

A drafter ends its draft behind a text that is no entry. The entries are the texts that it finds
likelier than `RAREST`, and its favourites down to `DEPTH`; so a short draft seldom ends too soon.
Logarithms are kept in hundredths, as whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec_lab.decoding.cache import KVCache
from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.low_bit import low_bit_copy
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.tree import ancestors
from specdec_lab.prompts import load_prompts
from specdec_lab.proposers.tree_expansion import Extend
from specdec_lab.study import recordings
from specdec_lab.study.rounding import rounded_copy

TOP_K, DEPTH = 5, 16
RAREST, MOST_ENTRIES = 0.001, 160
PLACES = {"chat": 3, "creative": 2, "code": 3, "json": 2}  # English evaluation prompts of each
AT_ONCE = 8  # texts that the drafter reads in one forward: the low-bit twin is one for few rows
LEAST = -20.0  # logarithms below it are rounded up to it


@dataclass(frozen=True, slots=True)
class LawForest:
    """The laws at one temperature. Entries of all places stand in one list, parents first."""

    target_probs: Tensor  # (E, M+1) of the children, and of all other tokens together
    draft_probs: Tensor  # (E, M) sums to 1: the drafter knows its children only
    graded: Tensor  # (E, M) by which fixed trees are chosen: at temperature 0 the law of 1
    parent: Tensor  # (E,) entry, -1 for a place
    slot: Tensor  # (E,) which child of its parent an entry is
    place: Tensor  # (E,) number of the place

    @property
    def is_root(self) -> Tensor:
        """Which entries are places, (E,) bool."""
        return self.parent < 0

    @property
    def roots(self) -> Tensor:
        """The entries that are places, (R,)."""
        return self.is_root.nonzero().squeeze(1)

    @property
    def child(self) -> Tensor:
        """The entry of every child, (E, M), -1 where it is none."""
        inner = (~self.is_root).nonzero().squeeze(1)
        child = torch.full_like(self.draft_probs, -1, dtype=torch.long)
        child[self.parent[inner], self.slot[inner]] = inner
        return child

    @property
    def depth(self) -> Tensor:
        """Tokens between the place and each entry, (E,)."""
        depth: list[int] = []
        for parent in self.parent.tolist():
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
        return torch.tensor(depth)

    def from_parents(self, values: Tensor) -> Tensor:
        """What every entry has as a child, (E,) from (E, M); 0 for places."""
        given = values[self.parent.clamp(min=0), self.slot]
        return torch.where(self.is_root, 0, given)

    def path_probs(self, probs: Tensor) -> Tensor:
        """The product of ``probs`` (E, M) along the path from the place to every child, (E, M)."""
        above = self.is_root.to(probs)
        for _ in range(int(self.depth.max())):
            above = self.is_root + self.from_parents(above[:, None] * probs)
        return above[:, None] * probs

    def per_place(self, values: Tensor) -> Tensor:
        """Sums of ``values`` (E, M) over the entries of each place, (R,)."""
        sums = values.new_zeros(len(self.roots))
        return sums.index_add(0, self.place, values.sum(1))


@torch.no_grad()
def grow(
    target: Target, draft: Target, ids: Sequence[int], most: int = MOST_ENTRIES
) -> dict[str, list]:
    """The laws behind ``ids``, as they are recorded: ``links`` (parent and slot of every entry but
    the first, as M * parent + slot), and by entry ``tokens`` (the children's ids), their ``draft``
    logarithms, the ``target`` ones of *its* M likeliest tokens, the favourite first, and the
    ``slots`` that these have among the children (-1: none).

    The drafter is asked about its likeliest texts first, `AT_ONCE` in a forward, one of which goes
    on with its favourites; about ``most`` of them at most.
    """
    first, extend = _reading(draft, ids, most)
    grown = _Growth(_logs(first))
    fed = replace(Draft.empty(1), parents=torch.zeros(1, 0, dtype=torch.long))
    while chosen := grown.best(min(AT_ONCE, most - grown.num_entries), draft.eos_ids):
        fed = grown.fed(fed, chosen)
        grown.add(chosen, _logs(extend(fed, len(chosen))[0]))
    return grown.recorded(_logs(_score(target, ids, fed)))


def record(target: Target, drafts: Mapping[str, Target]) -> dict[str, object]:
    """`grow` at a place of an answer to each of some prompts, by the name of the draft: what
    notebook 12 reads. Takes some minutes.
    """
    named = [
        (f"{domain}, {prompt.name}", prompt.ids(target))
        for domain, number in PLACES.items()
        for prompt in load_prompts(domain, "en")[:number]
    ]
    sampling = Sampling(temperature=0.7, top_k=TOP_K)
    how = {"sampling": sampling, "max_new_tokens": 16, "seed": 12}
    texts = [ids + generate(target, [ids], **how).tokens[0] for _, ids in named]
    grown = {name: [grow(target, draft, text) for text in texts] for name, draft in drafts.items()}
    for place in (place for places in grown.values() for place in places):
        del place["tokens"]
    return {"top_k": TOP_K, "places": [name for name, _ in named], "drafts": grown}


def laws_at(places: Sequence[Mapping], temperature: float) -> LawForest:
    """The laws of recorded places at a temperature, among `TOP_K` tokens."""
    draft, target, links, place = [], [], [], []
    for number, kept in enumerate(places):
        first = len(place)
        links += [[-1, 0], *([first + link // TOP_K, link % TOP_K] for link in kept["links"])]
        draft.append(_float(kept["draft"]))
        target.append(_target_law(kept, temperature))
        place += [number] * len(kept["draft"])
    logs, links = torch.cat(draft), torch.tensor(links)
    favourites = torch.zeros_like(logs).index_fill(1, torch.tensor([0]), 1)
    graded = (logs / (temperature or 1.0)).softmax(1)
    return LawForest(
        target_probs=torch.cat(target),
        draft_probs=graded if temperature else favourites,
        graded=graded,
        parent=links[:, 0],
        slot=links[:, 1],
        place=torch.tensor(place),
    )


class _Growth:
    """The entries so far, with the drafter's children of each and where they are linked."""

    def __init__(self, root: Tensor) -> None:
        self.links: list[tuple[int, int]] = []
        self.logs, self.tokens = root.topk(TOP_K, dim=1)  # (E, M)
        self.paths = self.logs.log_softmax(1)  # (E, M) of the whole path, among the children
        self.depth, self.tip = [0], 0  # tip: the entry where the chain of favourites ends

    @property
    def num_entries(self) -> int:
        return len(self.depth)

    def best(self, number: int, eos_ids: Sequence[int]) -> list[tuple[int, int]]:
        """The next children to become entries: the next favourite, then the likeliest others."""
        free = torch.tensor([[depth + 1 < DEPTH] for depth in self.depth]).expand_as(self.paths)
        free = free & ~torch.isin(self.tokens, torch.tensor(list(eos_ids)))
        taken = torch.zeros_like(free)
        taken[[p for p, _ in self.links], [s for _, s in self.links]] = True
        scores = self.paths.where(self.paths >= math.log(RAREST), -torch.inf)
        scores[self.tip, 0] = 1.0
        best = scores.where(free & ~taken, -torch.inf).flatten().sort(descending=True, stable=True)
        order = best.indices[:number][best.values[:number] > -torch.inf]
        return [divmod(i, TOP_K) for i in order.tolist()]

    def fed(self, fed: Draft, chosen: Sequence[tuple[int, int]]) -> Draft:
        """``fed`` with the chosen children as new nodes: node ``i`` is entry ``i + 1``."""
        new = torch.tensor([[int(self.tokens[parent, slot]) for parent, slot in chosen]])
        above = torch.tensor([[parent - 1 for parent, _ in chosen]])
        tokens = torch.cat((fed.tokens, new), 1)
        return Draft(tokens, fed.count + len(chosen), torch.cat((fed.parents, above), 1))

    def add(self, chosen: Sequence[tuple[int, int]], logs: Tensor) -> None:
        """The chosen children become entries; ``logs`` (C, V) is the drafter's law behind each."""
        logs, tokens = logs.topk(TOP_K, dim=1)
        for number, (parent, slot) in enumerate(chosen):
            if (parent, slot) == (self.tip, 0):
                self.tip = self.num_entries
            self.links.append((parent, slot))
            self.depth.append(self.depth[parent] + 1)
            path = self.paths[parent, slot] + logs[number].log_softmax(0)
            self.paths = torch.cat((self.paths, path[None]))
        self.logs, self.tokens = torch.cat((self.logs, logs)), torch.cat((self.tokens, tokens))

    def recorded(self, target_logs: Tensor) -> dict[str, list]:
        """What `grow` returns, with the target's law (E, V) of the same entries."""
        logs, tokens = target_logs.topk(TOP_K, dim=1)  # (E, M)
        same = tokens[:, :, None] == self.tokens[:, None]  # (E, M, M)
        return {
            "links": [TOP_K * parent + slot for parent, slot in self.links],
            "tokens": self.tokens.tolist(),
            "draft": _hundredths(self.logs),
            "target": _hundredths(logs),
            "slots": torch.where(same.any(2), same.long().argmax(2), -1).tolist(),
        }


def _target_law(kept: Mapping, temperature: float) -> Tensor:
    """The target's law of the children and of all others, (E, M+1)."""
    logs = _float(kept["target"])
    law = (logs / (temperature or 1.0)).softmax(1)
    if temperature == 0:
        law = torch.zeros_like(law).index_fill(1, torch.tensor([0]), 1)
    columns = torch.tensor(kept["slots"]) % (TOP_K + 1)  # -1: the last one
    return law.new_zeros(len(law), TOP_K + 1).scatter_add(1, columns, law)


def _score(model: Target, ids: Sequence[int], fed: Draft) -> Tensor:
    """Logits behind ``ids`` and behind every node of ``fed``, (N+1, V)."""
    cache, pending = _read(model, ids, fed.tokens.shape[1])
    return model.score(cache, pending, fed).logits[0]


def _reading(model: Target, ids: Sequence[int], num_entries: int) -> tuple[Tensor, Extend]:
    """Logits behind ``ids``, (1, V), and what reads on from there, level by level."""
    cache, pending = _read(model, ids, num_entries)
    first = model.score(cache, pending, Draft.empty(1)).logits[0]
    model.keep(cache, None, torch.ones(1, dtype=torch.long))

    def extend(fed: Draft, width: int) -> Tensor:
        seen = ancestors(fed.parents)[:, -width:, 1:]  # (1, width, M)
        return model.read(cache, fed.tokens[:, -width:], seen).logits

    return first, extend


def _read(model: Target, ids: Sequence[int], room: int) -> tuple[KVCache, Tensor]:
    tokens = torch.tensor([list(ids)])
    cache = model.start(1, len(ids) + room)
    model.prefill(cache, tokens[:, :-1], torch.tensor([len(ids) - 1]))
    return cache, tokens[:, -1]


def _logs(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(-1)


def _hundredths(values: Tensor) -> list:
    return (values.clamp(min=LEAST) * 100).round().long().tolist()


def _float(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64) / 100


def drafts_of(target: Target) -> dict[str, Target]:
    """A good and a poor draft: the target with 4 or 3 bits in its layers and 8 in its head."""
    good = low_bit_copy(target, 4)
    return {"good": good, "poor": rounded_copy(target, 3, head=good.model.head)}


def main() -> None:
    """``python -m specdec_lab.study.law_forest`` records the laws of notebook 12 again."""
    target = load_target()
    data = record(target, drafts_of(target))
    recordings.save("12_laws", data, command="python -m specdec_lab.study.law_forest", seed=12)


if __name__ == "__main__":
    main()
