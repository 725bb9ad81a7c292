"""The suffix proposer against a naive counter: paths, trees, budgets, local against global.

pytest tests/proposers/test_suffix.py
"""

import heapq
from collections import Counter
from math import floor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lab.decoding.records import Context, Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.proposers.suffix import Suffix
from specdec_lab.proposers.suffix_counts import Tree, count_tree

PAD = 1  # a token of the alphabet on purpose: pads must be ignored by place, not by value


def places(text: list[int], row: list[int], depth: int) -> list[tuple[int, int, list[int]]]:
    """Match length, position and continuation of every place of a text: it ends as the row does,
    and has a next token. So a row's own tail is no place.
    """
    found = []
    for end in range(len(text) - 1):
        longest = min(depth, end + 1, len(row))
        pairs = zip(text[end::-1], row[::-1], strict=False)
        match = next((i for i, (a, b) in enumerate(pairs) if a != b), longest)
        if match:
            found.append((min(match, longest), end, text[end + 1 :]))
    return found


def sources(row: list[int], proposer: Suffix) -> list[list[tuple[int, list[int]]]]:
    """The places of the row and those of the history, the latest first."""
    depth, start, far = proposer.max_depth - 1, 0, []
    for text in proposer.history.texts:
        far += [(match, start + end, rest) for match, end, rest in places(text, row, depth)]
        start += len(text)
    both = places(row, row, depth), far
    ordered = [sorted(source, key=lambda p: -p[1]) for source in both]
    return [[(match, rest) for match, _, rest in source] for source in ordered]


def votes_of(rests: list[list[int]]) -> Counter:
    """How often each token comes first; in the order of the places, as `max` takes the first."""
    return Counter(rest[0] for rest in rests if rest)


def follow(rests: list[list[int]], budget: int, min_prob: float) -> tuple[list[int], float]:
    """The path of majorities through continuations, and its score."""
    path, score, chance = [], 0.0, 1.0
    while len(path) < budget and (votes := votes_of(rests)):
        token = max(votes, key=votes.get)
        chance *= votes[token] / votes.total()
        if chance < min_prob:
            break
        path.append(token)
        score += chance
        rests = [rest[1:] for rest in rests if rest[:1] == [token]]
    return path, score


def reference(row: list[int], k: int, proposer: Suffix) -> list[int]:
    """What Suffix's docstring says, word by word, in plain lists."""
    best, best_score = [], 0.0
    for source in sources(row, proposer):
        path, score = [], 0.0
        for m in range(proposer.min_match, proposer.max_depth):
            budget = min(k, floor(m * proposer.factor + proposer.offset), proposer.max_depth - m)
            rests = [rest for match, rest in source if match >= m]
            found = follow(rests, budget, proposer.min_token_prob)
            if found[1] >= score:  # ties: the longer match
                path, score = found
        if score > best_score:  # ties: the local source, which comes first
            best, best_score = path, score
    return best


def context_of(rows: list[list[int]], spare: int = 0) -> Context:
    """Left-aligned rows of unequal length, padded with a real token."""
    width = max(map(len, rows)) + spare
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])  # (B, L)
    return Context(tokens, lengths, lengths)


def propose(proposer: Suffix, context: Context, k: int) -> Draft:
    """The call of the decoding loop; suffix decoding looks at neither sampling nor randomness."""
    return proposer.propose(context, k, Sampling(), None)


def proposals(proposer: Suffix, rows: list[list[int]], k: int, spare: int = 0) -> list[list[int]]:
    """What is proposed for each row, as lists: the same walked and searched."""
    found = searched(proposer, rows, k, spare)
    assert lists(propose(proposer, context_of(rows, spare), k), rows, k) == found
    return found


def searched(proposer: Suffix, rows: list[list[int]], k: int, spare: int = 0) -> list[list[int]]:
    """What the search for all places at once proposes, as on an accelerator."""
    proposer.vectorised = True
    draft = propose(proposer, context_of(rows, spare), k)
    proposer.vectorised = None
    return lists(draft, rows, k)


def lists(draft: Draft, rows: list[list[int]], k: int) -> list[list[int]]:
    """A well-formed draft, as lists."""
    assert draft.tokens.shape == (len(rows), k)
    assert draft.parents is None
    assert draft.probs is None
    assert (draft.tokens >= 0).all()
    pairs = zip(draft.tokens.tolist(), draft.count.tolist(), strict=True)
    return [tokens[:count] for tokens, count in pairs]


def remembering(texts: list[list[int]], **options) -> Suffix:
    """A proposer with a history."""
    proposer = Suffix(**options)
    for text in texts:
        proposer.remember(text)
    return proposer


OPTIONS = st.fixed_dictionaries(
    {
        "max_depth": st.integers(3, 9),
        "factor": st.sampled_from([0.0, 0.5, 1.0, 1.7]),
        "offset": st.sampled_from([-1.0, 0.0, 1.0, 2.5]),
        "min_token_prob": st.sampled_from([0.0, 0.1, 0.4, 0.5, 1.0]),
        "min_match": st.integers(1, 2),
    }
)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), alphabet=st.integers(1, 4), options=OPTIONS)
def test_the_local_source_equals_the_naive_counter(data, alphabet, options):
    row = st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=24)
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    proposer, k = Suffix(**options), data.draw(st.integers(1, 6))
    found = proposals(proposer, rows, k, spare=data.draw(st.integers(0, 3)))
    assert found == [reference(row, k, proposer) for row in rows]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), alphabet=st.integers(1, 3), options=OPTIONS)
def test_both_sources_equal_the_naive_counter(data, alphabet, options):
    row = st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=12)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    texts = data.draw(st.lists(row, min_size=0, max_size=5))
    proposer, k = remembering(texts, **options), data.draw(st.integers(1, 5))
    assert proposals(proposer, rows, k) == [reference(row, k, proposer) for row in rows]


def test_equals_the_naive_counter_on_long_rows():
    generator = torch.Generator().manual_seed(0)
    lengths = [400, 1, 399, 37, 2, 150]
    rows = [torch.randint(0, 9, (n,), generator=generator).tolist() for n in lengths]
    texts = [torch.randint(0, 9, (90,), generator=generator).tolist() for _ in range(3)]
    proposer = remembering(texts, max_depth=12, max_places=256, factor=2.0)
    assert proposals(proposer, rows, k=6) == [reference(row, 6, proposer) for row in rows]


# By hand: what is counted, and how far a draft goes.


def test_the_tail_is_not_counted():
    row = [7, 1, 2, 9, 7]  # Arctic's tree counts both 7s and says 1/2 for the 1 behind the first
    assert proposals(Suffix(min_token_prob=1.0), [row], k=4) == [[1]]


def test_the_majority_wins_and_a_tie_goes_to_the_latest_place():
    row = [7, 1, 0, 7, 2, 0, 7, 1, 3, 7]  # after 7: 1, 2, 1
    assert proposals(Suffix(factor=2), [row], k=2) == [[1, 3]]
    assert proposals(Suffix(), [[7, 1, 7, 2, 7]], k=1) == [[2]]


def test_the_chance_of_the_whole_path_ends_the_draft():
    row = [7, 1, 5, 3, 7, 1, 6, 4, 7, 2, 0, 7]  # 1 with 2/3, then 6 with 1/2: 1/3
    for least, draft in ((0.7, []), (0.66, [1]), (0.34, [1]), (0.33, [1, 6])):
        assert proposals(Suffix(factor=2, min_token_prob=least), [row], k=2) == [draft]


def test_a_longer_match_may_draft_more():
    row = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    for match, drafted in ((1, 1), (2, 2), (3, 3), (4, 4), (6, 4)):
        assert len(proposals(Suffix(), [[*row, *row[:match]]], k=4)[0]) == drafted
    assert proposals(Suffix(factor=0.5), [[*row, 1]], k=4) == [[]]
    assert proposals(Suffix(offset=2), [[*row, 1]], k=4) == [[2, 3, 4]]


def test_match_and_draft_share_the_depth():
    row = [*range(20), *range(12)]  # the last 12 tokens match; shorter matches may draft more
    assert proposals(Suffix(max_depth=10), [row], k=20) == [[12, 13, 14, 15, 16]]
    assert proposals(Suffix(max_depth=2), [row], k=20) == [[12]]


def test_it_knows_when_not_to_draft():
    row = [1, 2, 3, 4, 1]
    assert proposals(Suffix(), [row], k=4) == [[2]]
    assert proposals(Suffix(min_match=2), [row], k=4) == [[]]
    assert proposals(Suffix(), [[1, 2, 3]], k=4) == [[]]
    assert proposals(Suffix(), [[5]], k=4) == [[]]


def test_local_against_global_the_score_decides_and_a_tie_stays_local():
    row = [1, 2, 9, 1, 2]
    assert proposals(remembering([[1, 2, 5, 6]]), [row], k=2) == [[9, 1]]  # two sure tokens each
    unsure = [1, 2, 8, 1, 2, 9, 1, 2]
    assert proposals(remembering([[1, 2, 5, 6]]), [unsure], k=2) == [[5, 6]]
    longer = remembering([[0, 1, 2, 5, 6, 7]])  # three sure tokens against two
    assert proposals(longer, [[1, 2, 9, 0, 1, 2]], k=3) == [[5, 6, 7]]


def test_a_continuation_ends_with_its_text():
    proposer = remembering([[3, 4], [5, 6], [4, 7]])
    assert proposals(proposer, [[1, 2, 3]], k=3) == [[4]]
    assert proposals(remembering([[8, 3, 4], [5, 6]]), [[8, 3]], k=3) == [[4]]


def test_of_too_many_places_the_longest_matches_count_the_latest_first():
    row = [0, 1, 5, 0, 1, 6, 0, 1, 7, 0, 1]
    assert searched(Suffix(max_places=1), [row], k=1) == [[7]]
    longer = [9, *row[:3], 8, *row]  # only the first place has the 9 before it
    assert searched(Suffix(max_places=1), [[*longer, 9, 0, 1]], k=1) == [[5]]


def test_a_search_with_few_places_finds_the_longest_matches():
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(0, 4, (200,), generator=generator).tolist() for _ in range(4)]
    rows = [torch.randint(0, 4, (30,), generator=generator).tolist() for _ in range(5)]
    proposer = remembering(texts, max_depth=9)
    index = proposer.history.index(8)
    tails = torch.tensor([row[: -index.depth - 1 : -1] for row in rows])
    matched = index.find(tails, 6)[1].clamp(max=8)
    expected = [sorted(match for match, _ in sources(row, proposer)[1])[-6:] for row in rows]
    assert matched.sort().values.tolist() == expected


# State: the match lengths that are followed token by token are those counted afresh.


@settings(max_examples=40, deadline=None)
@given(data=st.data(), alphabet=st.integers(1, 3))
def test_following_token_by_token_equals_counting_afresh(data, alphabet):
    token = st.integers(0, alphabet - 1)
    rows = data.draw(st.lists(st.lists(token, min_size=1, max_size=9), min_size=1, max_size=3))
    proposer = Suffix(max_depth=6, vectorised=data.draw(st.booleans()))
    proposer.start(len(rows), 40)
    width = max(map(len, rows)) + 20
    proposer.observe(torch.zeros(len(rows), 3, dtype=torch.long), torch.zeros(len(rows)), {})
    for _ in range(4):
        context = context_of(rows, spare=width - max(map(len, rows)))
        followed = lists(propose(proposer, context, 4), rows, 4)
        assert followed == lists(propose(Suffix(max_depth=6), context, 4), rows, 4)
        new = [data.draw(st.lists(token, max_size=4)) for _ in rows]
        kept = torch.zeros(len(rows), max([1, *map(len, new)]), dtype=torch.long)
        proposer.observe(kept, torch.tensor([len(tokens) for tokens in new]), {})
        rows = [[*row, *tokens] for row, tokens in zip(rows, new, strict=True)]


def test_a_repeated_call_reads_nothing_again_and_a_new_text_is_seen():
    proposer, context = Suffix(), context_of([[1, 2, 3, 1, 2], [5, 6]])
    first = propose(proposer, context, 4)
    rows = proposer._rows
    assert torch.equal(propose(proposer, context, 4).tokens, first.tokens)
    assert proposer._rows is rows
    proposer.remember([4, 5, 6, 7, 8])
    assert lists(propose(proposer, context, 4), [[], []], 4)[1] == [7, 8]
    other = context_of([[1, 2, 3, 1, 2], [5, 4]])
    assert lists(propose(proposer, other, 4), [[], []], 4)[1] == [5]


def test_permuting_the_rows_permutes_the_proposals_case_23():
    rows = [[1, 2, 1, 2, 1], [3, 3], [1, 2, 3, 4, 1, 2], [9]]
    order = [2, 0, 3, 1]
    proposer = remembering([[9, 9, 8], [3, 1]])
    found = proposals(proposer, rows, k=4)
    assert proposals(proposer, [rows[i] for i in order], k=4) == [found[i] for i in order]


def test_whatever_lies_beyond_a_row_changes_nothing():
    context = context_of([[3, 1, 2, 3, 1], [1, 2, 1]], spare=3)
    other = context.tokens.clone()
    other[0, 5:], other[1, 3:] = 3, 2
    drafts = [
        propose(remembering([[2, 1, 4]]), Context(tokens, context.lengths, context.lengths), 4)
        for tokens in (context.tokens, other)
    ]
    assert torch.equal(drafts[0].tokens, drafts[1].tokens)
    assert torch.equal(drafts[0].count, drafts[1].count)


@pytest.mark.parametrize("width", [1, 2, 70])
@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("texts", [[], [[1, 2, 3]]])
def test_reads_nothing_on_the_host_case_20(width, k, texts):
    tokens = torch.zeros(3, width, dtype=torch.long, device="meta")
    lengths = torch.ones(3, dtype=torch.long, device="meta")
    proposer = remembering(texts)
    proposer.start(3, width)
    for _ in range(3):  # from scratch, then token by token
        draft = propose(proposer, Context(tokens, lengths, lengths), k)
        assert draft.tokens.shape == (3, k)
        assert draft.count.shape == (3,)
        assert draft.tokens.dtype == draft.count.dtype == torch.long
        assert draft.tokens.device.type == draft.count.device.type == "meta"
        proposer.observe(tokens[:, :2], lengths, {})


@pytest.mark.gpu
def test_the_proposal_lies_on_the_device_of_the_context_case_20():
    context = context_of([[3, 1, 2, 3, 1], [1, 2, 1], [7, 8]])
    there = Context(*(part.cuda() for part in (context.tokens, context.lengths, context.lengths)))
    here, away = (propose(remembering([[7, 8, 9]]), c, 4) for c in (context, there))
    assert away.tokens.is_cuda
    assert torch.equal(away.count.cpu(), here.count)
    kept = torch.arange(4) < here.count[:, None]
    assert torch.equal(away.tokens.cpu() * kept, here.tokens * kept)


# The tree.


def naive_tree(rests: list[list[int]], size: int, least: float) -> list[tuple[tuple, float]]:
    """Paths and chances of the likeliest nodes, best first, with a heap as Arctic does."""
    heap, found, number = [(-1.0, 0, (), rests)], [], 0
    while heap and len(found) <= size:
        chance, _, path, here = heapq.heappop(heap)
        found.append((path, -chance))
        votes = votes_of(here)
        for token, count in votes.items():
            number += 1
            child = chance * (count / votes.total())
            if -child >= least and len(path) < 4:
                behind = [rest[1:] for rest in here if rest[:1] == [token]]
                heapq.heappush(heap, (child, number, (*path, token), behind))
    return found[1:]


def paths_of(tree: Tree, row: int) -> list[tuple[tuple, float]]:
    """Every node of a row as the tokens on its way from the root, and its chance."""
    paths = []
    for node in range(int(tree.count[row])):
        parent = int(tree.parents[row, node])
        assert parent < node
        above = paths[parent][0] if parent >= 0 else ()
        paths.append(((*above, int(tree.tokens[row, node])), float(tree.probs[row, node])))
    return paths


@settings(max_examples=40, deadline=None)
@given(data=st.data(), alphabet=st.integers(1, 4), least=st.sampled_from([0.0, 0.1, 0.3]))
def test_the_tree_equals_the_naive_one(data, alphabet, least):
    rest = st.lists(st.integers(0, alphabet - 1), max_size=4)
    rows = data.draw(st.lists(st.lists(rest, min_size=6, max_size=6), min_size=1, max_size=3))
    following = torch.tensor([[(r + [-1] * 4)[:4] for r in row] for row in rows])
    matched = torch.tensor([[5, 4, 4, 3, 2, 2]] * len(rows))
    length = data.draw(st.integers(1, 6))
    size = data.draw(st.integers(1, 24))
    tree = count_tree(matched, following, length, size, least)
    for row, rests in enumerate(rows):
        voting = rests[: int((matched[row] >= length).sum())]
        whole = naive_tree(voting, 99, least)
        found = paths_of(tree, row)
        assert [chance for _, chance in found] == pytest.approx([c for _, c in whole[:size]])
        assert len(set(found)) == len(found)
        known = dict(whole)
        assert all(known[path] == pytest.approx(chance) for path, chance in found)


def test_the_tree_by_hand():
    following = torch.tensor([[[1, 5], [1, 6], [2, -1], [1, 5]]])
    tree = count_tree(torch.tensor([[3, 2, 2, 2]]), following, 2, 8, 0.1)
    assert paths_of(tree, 0) == [
        ((1,), 0.75),
        ((1, 5), pytest.approx(0.5)),
        ((2,), 0.25),
        ((1, 6), pytest.approx(0.25)),
    ]
    assert tree.count.tolist() == [4]


def test_the_tree_reads_nothing_on_the_host():
    matched = torch.zeros(2, 6, dtype=torch.long, device="meta")
    following = torch.zeros(2, 6, 3, dtype=torch.long, device="meta")
    tree = count_tree(matched, following, 2, 5, 0.1)
    assert tree.tokens.shape == tree.parents.shape == tree.probs.shape == (2, 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_depth": 1}, "max_depth must be a whole number, from 2 to 64, not 1"),
        ({"max_depth": 65}, "max_depth must be a whole number, from 2 to 64, not 65"),
        ({"min_match": 24}, "min_match must be a whole number, from 1 to 23, not 24"),
        ({"factor": -1}, "factor must be a number of at least 0, not -1"),
        ({"offset": "two"}, "offset must be a number, not 'two'"),
        ({"min_token_prob": 1.5}, "min_token_prob must be a number from 0 to 1, not 1.5"),
        ({"min_token_prob": float("nan")}, "min_token_prob must be a number from 0 to 1, not nan"),
        ({"max_places": 0}, "max_places must be a whole number, from 1 to 1024, not 0"),
        ({"history_tokens": -1}, "max_tokens must be a whole number, 0 or more, not -1"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be a whole number"),
    ],
)
def test_bad_options_get_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Suffix(**options)
