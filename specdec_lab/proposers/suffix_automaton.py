"""A suffix automaton: how often each token followed each run of tokens, a few steps a token.

Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text". A state stands for
all runs of tokens that end at the same places; its link leads to the longest shorter run that also
ends elsewhere. So the links from the end of a row lead through all its endings, in as many steps as
there are different sets of places, and what follows most often is written down at each. On a CPU
this takes far less time than any search: see `suffix` for where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ROOT, NONE = 0, -1
Place = tuple[int, int]  # a state, and how long the run is that stands in it
START: Place = (ROOT, 0)


class Automaton:
    """Counts what followed runs of at most ``depth`` tokens, in texts that are read in order.

    A run counts where something follows it; the end of a text has nothing behind it. Only what a
    draft can ask for is counted: run and continuation together are at most ``depth`` tokens long.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tail = START  # the last tokens of the text that is being read
        self._last = ROOT  # the state of that whole text
        self._next: list[dict[int, int]] = [{}]  # state -> token -> state
        self._link, self._length = [NONE], [0]  # the longest run of each state
        self._count = [0]  # places where the runs of a state end
        self._followed, self._best = [0], [NONE]  # places with a next token; the most frequent one

    @property
    def size(self) -> int:
        """How many states there are; more once it has read something new."""
        return len(self._length)

    def begin(self) -> None:
        """What is read next is another text."""
        self.tail, self._last = START, ROOT

    def read(self, tokens: Iterable[int]) -> None:
        """Read on."""
        for token in tokens:
            state, length = self.tail
            self._extend(token)
            state = self._holding(state, length)  # it may have been split
            length = min(length + 1, self.depth)
            self.tail = self._holding(self._next[state][token], length), length
            self._count_place(self.tail[0])
            self._count_next(state, token)

    def step(self, place: Place, token: int) -> Place:
        """The longest run that ends with ``token`` and continues the run at ``place``, or its end;
        at most ``depth - 1`` tokens long, as a draft comes behind it.
        """
        state, length = place
        while state != ROOT and token not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        if token not in self._next[state]:
            return START
        length = min(length + 1, self.depth - 1)
        return self._holding(self._next[state][token], length), length

    def best_path(
        self, place: Place, budgets: Sequence[int], min_token_prob: float
    ) -> tuple[float, list[int]]:
        """Score and tokens of the best continuation of the run at ``place`` and all its endings;
        ties to the longer one.

        ``budgets[m]`` says how many tokens may be drafted behind m tokens, for m < ``depth``.
        """
        best: tuple[float, list[int]] = (0.0, [])
        state, length = place
        while state != ROOT:
            shorter = self._length[self._link[state]]
            budget = max(budgets[shorter + 1 : length + 1], default=0)
            if budget > best[0]:  # else not even sure tokens would do
                found = self._follow(state, budget, min_token_prob)
                best = found if found[0] > best[0] else best
            state, length = self._link[state], shorter
        return best

    def _follow(self, state: int, budget: int, least: float) -> tuple[float, list[int]]:
        """The path of the most frequent next tokens, until its chance is too small."""
        score, chance, tokens = 0.0, 1.0, []
        while len(tokens) < budget and (token := self._best[state]) != NONE:
            following = self._next[state][token]
            chance *= self._count[following] / self._followed[state]
            if chance < least:
                break
            tokens.append(token)
            score += chance
            state = following
        return score, tokens

    def _count_place(self, state: int) -> None:
        """One more place where the runs of a state and of its links end."""
        while state != ROOT:
            self._count[state] += 1
            state = self._link[state]

    def _count_next(self, state: int, token: int) -> None:
        """``token`` followed the runs of a state and of its links; of equally frequent tokens the
        latest is preferred.
        """
        while state != ROOT:
            self._followed[state] += 1
            following, best = self._next[state], self._best[state]
            if best == NONE or self._count[following[token]] >= self._count[following[best]]:
                self._best[state] = token
            state = self._link[state]

    def _holding(self, state: int, length: int) -> int:
        """The state of the ending of ``length`` tokens of a state's runs."""
        while length and self._length[self._link[state]] >= length:
            state = self._link[state]
        return state if length else ROOT

    # The textbook's construction, for several texts.

    def _extend(self, token: int) -> None:
        last, known = self._last, self._next[self._last].get(token)
        if known is not None:  # an earlier text has begun like this one
            self._last = self._reached(last, token, known)
            return
        new = self._new_state(self._length[last] + 1)
        state = last
        while state != NONE and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state != NONE:
            self._link[new] = self._reached(state, token, self._next[state][token])
        self._last = new

    def _reached(self, state: int, token: int, target: int) -> int:
        """The state of the longest run of ``state`` with ``token`` behind it: ``target``, or the
        shorter runs of it as a state of their own.
        """
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        split = self._new_state(length, like=target)
        self._link[target] = split
        while state != NONE and self._next[state].get(token) == target:
            self._next[state][token] = split
            state = self._link[state]
        return split

    def _new_state(self, length: int, like: int | None = None) -> int:
        self._length.append(length)
        self._next.append({} if like is None else dict(self._next[like]))
        self._link.append(ROOT if like is None else self._link[like])
        self._count.append(0 if like is None else self._count[like])
        self._followed.append(0 if like is None else self._followed[like])
        self._best.append(NONE if like is None else self._best[like])
        return len(self._length) - 1


class Row:
    """One row of a request: its own automaton, and where it stands in that of the history."""

    def __init__(self, depth: int, history: Automaton | None) -> None:
        self.tokens: list[int] = []  # what it has read
        self._own, self._history = Automaton(depth), history
        self._known = history.size if history else 0
        self._place = START

    def has_read(self, tokens: list[int], history: Automaton | None) -> bool:
        """Whether these are all its tokens, and its history is this one, with nothing new in it."""
        known = history.size if history else 0
        return self.tokens == tokens and self._history is history and self._known == known

    def read(self, tokens: Sequence[int]) -> None:
        """The row's next tokens."""
        self.tokens += tokens
        self._own.read(tokens)
        if self._history is not None:
            for token in tokens:
                self._place = self._history.step(self._place, token)

    def draft(self, budgets: Sequence[int], min_token_prob: float) -> list[int]:
        """The continuation with the higher score, of the row itself at a tie."""
        score, tokens = self._own.best_path(self._own.tail, budgets, min_token_prob)
        if self._history is not None:
            far, others = self._history.best_path(self._place, budgets, min_token_prob)
            tokens = others if far > score else tokens
        return tokens
