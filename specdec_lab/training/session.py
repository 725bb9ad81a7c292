"""From a method's name to its weights: ``python -m specdec_lab train <method>``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from specdec_lab.decoding.checkpoint import load_target
from specdec_lab.decoding.store import Report, cache_folder, to_stderr
from specdec_lab.decoding.target import Target
from specdec_lab.proposers import weights
from specdec_lab.proposers.draft_vocab import (
    DEFAULT_SIZE,
    DraftVocab,
    always_kept,
    count_tokens,
    most_useful,
)
from specdec_lab.training.corpus import FOLDER, load_corpus, load_labelled
from specdec_lab.training.half_products import half_copy, half_is_faster
from specdec_lab.training.menu import METHODS, all_hidden_layers
from specdec_lab.training.methods import Method
from specdec_lab.training.states import TargetStates, Text, Texts
from specdec_lab.training.trainer import Settings, Trainer

COUNTED_TOKENS = 400_000  # of English, Turkish and code, beside what the target wrote


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train and where it goes.

    ``options`` are keyword arguments of the method's class. ``folder`` gets the weights and, beside
    them, the learning curve; ``checkpoints`` what a run that was stopped goes on from. ``start`` is
    a weights file of the same method to go on from with other texts: minutes and places add up.
    """

    method: str
    settings: Settings
    options: dict[str, object] = field(default_factory=dict)
    learn_prompts: bool = False
    seconds: float = math.inf
    folder: Path = weights.FOLDER
    start: Path | None = None
    checkpoints: Path = field(default_factory=lambda: cache_folder() / "training")


def run(args: argparse.Namespace) -> Path | None:
    """What the command line asks for, on the corpus; returns as `train`."""
    target = load_target(dtype=torch.float32, device=args.device)
    folder = args.corpus or FOLDER
    texts = load_corpus("train", target, folder, num_tokens=args.tokens)
    counted = [*texts, *load_labelled(COUNTED_TOKENS, "train", target)]
    texts += load_labelled(args.labelled, "train", target) if args.labelled else []
    if args.start:
        vocab = vocab_of(target, args.start)
    else:
        vocab = draft_vocab(target, counted, args.vocab_size)
    unseen = load_corpus("heldout", target, args.unseen or folder)
    return train(target, texts, unseen, vocab, plan_of(args))


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the options of the command line describe."""
    kind = METHODS[args.action]
    settings = Settings(
        steps=args.steps,
        learning_rate=args.learning_rate or kind.learning_rate,
        evaluate_every=args.every,
        seed=args.seed,
        half=args.half if args.half is not None else half_pays(torch.device(args.device)),
    )
    return Plan(
        args.action,
        settings,
        {"loss": args.loss, **args.options},
        learn_prompts=args.learn_prompts,
        seconds=math.inf if args.minutes is None else 60 * args.minutes,
        folder=args.folder or weights.FOLDER,
        start=args.start,
    )


def train(
    target: Target,
    texts: Sequence[Text],
    unseen: Sequence[Text],
    vocab: DraftVocab,
    plan: Plan,
    report: Report = to_stderr,
) -> Path | None:
    """Train on ``texts`` to draft tokens of ``vocab``, watch ``unseen``, and write the weights;
    returns their path, or None when the time was up before the last step (the same call goes on).

    Raises ValueError for an unknown method, for no texts, and for a checkpoint of another run.
    """
    if plan.method not in METHODS:
        raise ValueError(f"there is no recipe for {plan.method!r}; use {', '.join(METHODS)}")
    trainer = _trainer(target, texts, unseen, vocab, plan)
    if trainer.step:
        report(f"Going on at step {trainer.step} from {trainer.path}.")
    trainer.run(report, plan.seconds)
    if not trainer.finished:
        report(f"Stopped at step {trainer.step}: run the same command to go on.")
        return None
    return save(trainer, plan)


def _trainer(
    target: Target,
    texts: Sequence[Text],
    unseen: Sequence[Text],
    vocab: DraftVocab,
    plan: Plan,
) -> Trainer:
    kind = METHODS[plan.method]
    states = states_of(target, kind.hidden_layers(target))
    learned = Texts(texts, states, vocab, learn_prompts=plan.learn_prompts)
    method = kind(target, learned, seed=plan.settings.seed, **plan.options)
    if plan.start:
        go_on_from(method, plan.start)
    path = plan.checkpoints / f"{plan.method}-{learned.hash()}.pt"
    return Trainer(method, learned, Texts(unseen, states, vocab), plan.settings, path)


def vocab_of(target: Target, path: Path) -> DraftVocab:
    """The draft vocabulary of a weights file."""
    tensors, _ = weights.read_weights(path)
    return DraftVocab(tensors["draft_to_target"], target.vocab_size)


def go_on_from(method: Method, path: Path) -> None:
    """Fill a new method with the weights of an earlier run; ValueError unless they are of that
    method, vocabulary and shape.
    """
    tensors, earlier = weights.read_weights(path)
    kept = tensors.pop("draft_to_target")
    if earlier["method"] != method.name or not torch.equal(kept, method.vocab.draft_to_target):
        raise ValueError(
            f"The weights at {path} are of {earlier['method']} or for other tokens: go on from "
            f"weights of {method.name} with their own vocabulary, or train from the beginning."
        )
    weights.load_trained_state(method.module, tensors)
    method.earlier = {key: earlier[key] for key in ("data_hash", "places", "minutes")}


def states_of(target: Target, layers: Iterable[int] = ()) -> TargetStates:
    """The states of a target in the user's cache, with those that any other method will ask for.

    On a CPU that multiplies bfloat16 faster they come from such products: near the target's and not
    quite its own, as the texts themselves are (`half_products.py`).
    """
    on_cpu = target.device.type == "cpu"
    reader = half_copy(target) if on_cpu and half_pays(target.device) else target
    return TargetStates(target, layers, reader=reader, also=all_hidden_layers(target))


def half_pays(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster there: on accelerators, and on some processors."""
    return device.type != "cpu" or half_is_faster()


def draft_vocab(target: Target, texts: Sequence[Text], size: int = DEFAULT_SIZE) -> DraftVocab:
    """The ``size`` tokens that come most often in ``texts``, every domain counting the same, and
    those that are always kept.
    """
    by_domain: dict[str, list[Sequence[int]]] = {}
    for text in texts:
        by_domain.setdefault(text.domain, []).append(text.answer)
    counts = [count_tokens(answers, target.vocab_size) for answers in by_domain.values()]
    kept = always_kept(target.tokenizer, target.eos_ids) if target.tokenizer else target.eos_ids
    return most_useful(counts, min(size, target.vocab_size), kept)


def save(trainer: Trainer, plan: Plan) -> Path:
    """Write the weights with their metadata and the curve as JSON beside them."""
    path = plan.folder / f"{plan.method}.safetensors"
    said = about(trainer, plan)
    weights.save_weights(path, trainer.method.tensors(), said, trainer.method.storage)
    record = {"about": said, "curve": trainer.curve}
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def about(trainer: Trainer, plan: Plan) -> dict[str, str]:
    """Everything that the weights came from."""
    method, settings = trainer.method, plan.settings
    places = trainer.places + int(method.earlier.get("places", 0))
    minutes = trainer.seconds / 60 + float(method.earlier.get("minutes", 0))
    return {
        **method.metadata(),
        "data_hash": trainer.texts.hash(),
        "tokens": str(trainer.texts.num_tokens),
        "places": str(places),
        "minutes": f"{minutes:.1f}",
        "seed": str(settings.seed),
        "steps": str(trainer.step),
        "loss": method.loss_name,
        "products": "bfloat16" if settings.half else "float32",
        "final_loss": f"{trainer.loss:.4f}",
        "torch": torch.__version__,
        "command": " ".join(["python -m specdec_lab", *map(_shown, sys.argv[1:])]),
    }


def _shown(argument: str) -> str:
    """An argument of the command line as it is written down: no place of one machine in it."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    root = weights.FOLDER.parents[1]
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name
