"""A draft that learns before the reader's eyes: any method of the menu, on a few thousand tokens.

Nothing here is a recipe of its own. Texts are a slice of the corpus, states, losses and the trainer
are those of ``python -m specdec_lab train``; only the amounts are small, so that a lesson takes
seconds. A number of steps is fixed and not a time: so a lesson ends with the same weights whenever
it is run on the same machine.

    lesson = prepare_lesson(target)
    run = train_live(lesson, "mlp_speculator", steps=120, width=384)
    drafter = run.proposer()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from specdec_lab.decoding.store import Report
from specdec_lab.decoding.target import Target
from specdec_lab.proposers import load_proposer
from specdec_lab.proposers.base import Proposer
from specdec_lab.proposers.draft_vocab import DraftVocab
from specdec_lab.proposers.weights import save_weights
from specdec_lab.training.acceptance import held_out
from specdec_lab.training.corpus import load_corpus
from specdec_lab.training.menu import METHODS
from specdec_lab.training.methods import Method
from specdec_lab.training.recipes import Recipe
from specdec_lab.training.session import draft_vocab
from specdec_lab.training.states import TargetStates, Text, Texts
from specdec_lab.training.trainer import Settings, Trainer

DOMAINS = ("maths",)
NUM_TOKENS, NUM_UNSEEN = 3000, 800
VOCAB_SIZE = 2048
POINTS = 6  # of a learning curve, besides the one before the first step


def nobody(line: str) -> None:
    """A report that is not shown."""


class LessonStates(TargetStates):
    """States computed here and now by the target itself, and gone with the lesson: those in the
    cache folder may have been computed in half the precision, and a lesson should end alike
    everywhere.
    """

    def __init__(self, target: Target, layers: Sequence[int]) -> None:
        super().__init__(target, layers)
        self._known: dict[tuple, dict[str, Tensor]] = {}

    def of(self, ids: Sequence[int], start: int = 0) -> dict[str, Tensor]:
        """As `TargetStates.of`, in memory."""
        key = (start, *ids)
        if key not in self._known:
            self._known[key] = self._compute(ids, start)
        return self._known[key]


@dataclass(frozen=True)
class Lesson:
    """A few texts to learn from, a few to be judged by, and the tokens that can be drafted."""

    target: Target
    learned: Sequence[Text]
    unseen: Sequence[Text]
    vocab: DraftVocab
    states: dict[tuple[int, ...], LessonStates] = field(default_factory=dict, repr=False)

    @property
    def num_tokens(self) -> int:
        """Tokens of the answers to learn from."""
        return sum(len(text.answer) for text in self.learned)

    def texts(self, layers: Iterable[int] = ()) -> tuple[Texts, Texts]:
        """What is learned and what is held out, for drafts that want the target's states of
        ``layers``. The target reads a text once, when it is first needed.
        """
        layers = tuple(layers)
        states = self.states.setdefault(layers, LessonStates(self.target, layers))
        return Texts(self.learned, states, self.vocab), Texts(self.unseen, states, self.vocab)

    def read(self, method: str | type[Method]) -> float:
        """Have the target read all texts for ``method``; returns the seconds that it took."""
        started = time.monotonic()
        for texts in self.texts(method_of(method).hidden_layers(self.target)):
            for _ in texts.once():
                pass
        return time.monotonic() - started


@dataclass(frozen=True)
class LiveRun:
    """A draft that has learned, and how it did.

    ``curve`` has an entry before the first step and one for each evaluation: ``step``, ``seconds``
    of learning, smoothed ``loss``, and what `held_out` finds on texts that were not learned
    (``alpha`` and ``overlap`` by depth, ``tau``, ``cap``).
    """

    lesson: Lesson
    method: Method
    curve: list[dict]
    seconds: float  # of learning and looking, the target's reading not counted

    @property
    def num_trained(self) -> int:
        """Numbers that were trained."""
        return sum(p.numel() for p in self.method.module.parameters() if p.requires_grad)

    @property
    def figure_data(self) -> dict[str, object]:
        """What the figure of a learning curve is drawn from; no clocks."""
        keys = ("step", "loss", "alpha", "judged", "tau")
        return {
            "method": self.method.name,
            "tokens": self.lesson.num_tokens,
            "cap": self.curve[-1]["cap"][0],
            "curve": [{key: entry[key] for key in keys} for entry in self.curve],
        }

    def save(self, path: Path) -> None:
        """Write the weights as a training session does."""
        method = self.method
        save_weights(path, method.tensors(), method.metadata(), method.storage)

    def proposer(self, **options: object) -> Proposer:
        """A proposer with these weights, made as `load_proposer` makes one from a file."""
        name = self.method.metadata()["method"]
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.safetensors"
            self.save(path)
            option = "model" if name == "draft_model" else "weights"
            config = {"method": name, option: str(path), **options}
            return load_proposer(config, self.lesson.target)


def prepare_lesson(
    target: Target,
    domains: Sequence[str] = DOMAINS,
    num_tokens: int = NUM_TOKENS,
    num_unseen: int = NUM_UNSEEN,
    vocab_size: int = VOCAB_SIZE,
) -> Lesson:
    """A slice of the corpus: about ``num_tokens`` of answers to learn from and ``num_unseen`` to be
    judged by, to English prompts of our own words; the draft vocabulary is counted on all training
    answers of these domains.

    Raises OSError when there is no corpus, ValueError where it has nothing of ``domains``.
    """

    def wanted(recipe: Recipe) -> bool:
        return recipe.is_own and recipe.language == "en" and recipe.domain in domains

    known = load_corpus("train", target, wanted=wanted)
    unseen = load_corpus("heldout", target, num_tokens=num_unseen, wanted=wanted)
    if not (known and unseen):
        raise ValueError(f"the corpus has no texts of {', '.join(domains)}; try chat, code, maths")
    learned = _first(known, num_tokens)
    return Lesson(target, learned, unseen, draft_vocab(target, known, vocab_size))


def _first(texts: Sequence[Text], num_tokens: int) -> list[Text]:
    """The first texts, until their answers hold so many tokens."""
    chosen, have = [], 0
    for text in texts:
        if have >= num_tokens:
            break
        chosen.append(text)
        have += len(text.answer)
    return chosen


def train_live(
    lesson: Lesson,
    method: str | type[Method],
    steps: int = 120,
    learning_rate: float | None = None,
    seed: int = 0,
    report: Report = nobody,
    **options: object,
) -> LiveRun:
    """Train ``method``, a name of the menu or a class of yours, for ``steps`` on ``lesson``;
    ``options`` are those of the class.

    The learning rate is the method's own unless given. ``report`` gets a line an evaluation. Raises
    ValueError for a method that cannot be trained.
    """
    kind = method_of(method)
    lesson.read(method)
    started = time.monotonic()
    learned, unseen = lesson.texts(kind.hidden_layers(lesson.target))
    made = kind(lesson.target, learned, seed=seed, **options)
    settings = Settings(
        steps=steps,
        learning_rate=learning_rate or kind.learning_rate,
        warmup=min(20, steps // 5),
        evaluate_every=-(-steps // POINTS),
        seed=seed,
    )
    before = _before(made, learned, unseen)
    with TemporaryDirectory() as folder:
        trainer = Trainer(made, learned, unseen, settings, Path(folder) / "live.pt")
        trainer.run(report)
    return LiveRun(lesson, made, [before, *trainer.curve], time.monotonic() - started)


def method_of(method: str | type[Method]) -> type[Method]:
    """The class of a method that can be trained; ValueError naming those of the menu if unknown."""
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise ValueError(f"{method!r} cannot be trained; use {', '.join(METHODS)}.")
    return METHODS[method]


@torch.no_grad()
def _before(method: Method, learned: Texts, unseen: Texts) -> dict:
    """The entry of a curve before the first step."""
    loss = float(method.loss(next(learned.once())))
    return {"step": 0, "seconds": 0.0, "loss": loss, **held_out(method, unseen.once())}
