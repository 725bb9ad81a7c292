"""The decoding loop, step by step by hand, for tests that look at every draft."""

from specdec_lab.decoding.decode import Loop
from specdec_lab.decoding.randomness import CounterRandomness
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.request import Request
from specdec_lab.decoding.sampling import Sampling

GREEDY = Sampling()
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [9]]


def new_loop(target, drafter, k, rule="auto", sampling=GREEDY, prompts=PROMPTS) -> Loop:
    asked = Request.checked(target, prompts, drafter, k, sampling, rule, 60, None)
    return Loop(target, asked, CounterRandomness([0] * len(prompts), target.device))


def one_step(loop: Loop) -> Draft:
    admitted = loop.propose()
    loop.advance(admitted, loop.score(admitted.draft))
    loop.cache.settle(int(loop.context.lengths.max()))
    return admitted.draft
