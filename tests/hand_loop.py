"""The decoding loop, step by step by hand, for tests that look at every draft."""

import torch

from specdec_lab.decoding.decode import Loop
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Context, Draft, Verdict
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.tree import ancestors, chain_parents, depths, path_to

GREEDY = Sampling()
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]


def new_loop(target, drafter, k, rule="auto", sampling=GREEDY, prompts=PROMPTS, budget=60) -> Loop:
    asked = Request.checked(target, prompts, drafter, k, sampling, rule, budget, None)
    return Loop(target, asked, CounterRandomness([0] * len(prompts), target.device))


def one_step(loop: Loop) -> Draft:
    admitted = loop.propose()
    loop.advance(admitted, loop.score(admitted.draft))
    loop.cache.settle(int(loop.context.lengths.max()))
    return admitted.draft


def accept(*counts: int):
    """A rule that accepts so many tokens of every row, on the way to its last one, and then says
    the token 6.
    """

    def rule(context, draft, scores, sampling, randomness):
        parents = chain_parents(*draft.tokens.shape) if draft.parents is None else draft.parents
        seen = ancestors(parents)
        depth = depths(seen).gather(1, draft.count[:, None])[:, 0]
        accepted = torch.minimum(torch.tensor(counts), depth)
        return Verdict(path_to(seen, draft.count), accepted, torch.full_like(accepted, 6))

    return rule


def rows_of(context: Context) -> list[list[int]]:
    pairs = zip(context.tokens.tolist(), context.lengths.tolist(), strict=True)
    return [tokens[:length] for tokens, length in pairs]


def path_of(tokens, parents, node) -> list[int]:
    """The tokens from the top of a tree down to ``node``."""
    path = []
    while node >= 0:
        path, node = [tokens[node], *path], parents[node]
    return path


def check_node(draft, b, node, law, vocab) -> None:
    """Drawn nodes tell the law without the siblings before; others are among the best three."""
    siblings = (draft.parents[b, :node] == draft.parents[b, node]).nonzero()[:, 0]
    if draft.probs is None:
        best = vocab.to_target(law.topk(3).indices).tolist()
        assert int(draft.tokens[b, node]) in best
        assert len({int(draft.tokens[b, i]) for i in [*siblings, node]}) == len(siblings) + 1
    else:
        law = law.index_fill(0, vocab.to_draft(draft.tokens[b, siblings]), 0)
        told = draft.probs[b, node]
        torch.testing.assert_close(told, law / law.sum(), atol=1e-9, rtol=0)
