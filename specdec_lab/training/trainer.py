"""The one trainer: AdamW, warm-up and cosine, held-out acceptance while it learns, and resume.

Batch n depends on the seed and n alone, and a checkpoint holds everything else; so a run that was
killed and started again ends with the very weights of a run that was not (on one device and number
of threads). Checkpoints replace each other only when whole.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from specdec_lab.proposers.weights import load_trained_state, trained_state
from specdec_lab.training.acceptance import held_out
from specdec_lab.training.methods import Method
from specdec_lab.training.states import Batch, Texts

Report = Callable[[str], None]
SMOOTHING = 0.98  # of the reported loss, per step


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train. ``learning_rate`` rises over ``warmup`` steps and falls along a cosine to
    ``final_rate`` of itself at step ``steps``; gradients are cut to the norm ``clip``. ``half`` has
    the products of a step in bfloat16 (weights, norms, losses and the optimizer stay in float32).
    """

    steps: int = 2000
    learning_rate: float = 2e-3
    warmup: int = 40
    final_rate: float = 0.03
    weight_decay: float = 0.05
    clip: float = 1.0
    evaluate_every: int = 200
    seed: int = 0
    half: bool = False

    def rate(self, step: int) -> float:
        """The learning rate of ``step``, counted from 0."""
        rising = min((step + 1) / max(self.warmup, 1), 1)
        progress = min(max(step - self.warmup, 0) / max(self.steps - self.warmup, 1), 1)
        cosine = (1 + math.cos(math.pi * progress)) / 2
        return self.learning_rate * rising * (self.final_rate + (1 - self.final_rate) * cosine)


class Trainer:
    """Trains a method's module on ``texts`` and keeps a checkpoint at ``path``.

    A checkpoint that is there is gone on from. ``curve`` has an entry for every evaluation: step,
    tokens seen, seconds, smoothed loss and what `held_out` found on ``unseen``. Raises ValueError
    for a checkpoint of other settings or texts.
    """

    def __init__(
        self, method: Method, texts: Texts, unseen: Texts, settings: Settings, path: Path
    ) -> None:
        self.method, self.texts, self.unseen = method, texts, unseen
        self.settings, self.path = settings, path
        self.optimizer = torch.optim.AdamW(
            _groups(method.module, settings.weight_decay), betas=(0.9, 0.95)
        )
        self.step, self.places, self.seconds, self.loss = 0, 0, 0.0, math.nan
        self.curve: list[dict] = []
        self._fingerprint = self._describe()
        self._load()

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.settings.steps

    def run(
        self,
        report: Report = print,
        seconds: float = math.inf,
        save_every: float = 60.0,
    ) -> None:
        """Train to the last step, or for about ``seconds``; a checkpoint every ``save_every``
        seconds and at the end, whatever ends it.
        """
        started = saved = time.monotonic()
        try:
            for batch in self.texts.endless(self.settings.seed, self.step):
                now = time.monotonic()
                if self.finished or now - started > seconds:
                    break
                self._learn(batch)
                self.seconds += time.monotonic() - now
                if self._due():
                    self._evaluate(report)
                if time.monotonic() - saved > save_every:
                    self.save()
                    saved = time.monotonic()
        finally:
            self.save()

    def _learn(self, batch: Batch) -> None:
        """One step of gradient descent."""
        self.method.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.step)
        with torch.autocast(batch.tokens.device.type, torch.bfloat16, self.settings.half):
            loss = self.method.loss(batch, self.step / self.settings.steps)
        number = loss.item()
        if not math.isfinite(number):
            raise ValueError(f"The loss is {number} at step {self.step}: lower the learning rate.")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters(), self.settings.clip)
        self.optimizer.step()
        first = math.isnan(self.loss)
        self.loss = number if first else SMOOTHING * self.loss + (1 - SMOOTHING) * number
        self.step += 1
        self.places += int(batch.judged.sum())

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _due(self) -> bool:
        return self.finished or self.step % self.settings.evaluate_every == 0

    def _evaluate(self, report: Report) -> None:
        found = held_out(self.method, self.unseen.once())
        entry = {
            "step": self.step,
            "places": self.places,
            "seconds": round(self.seconds, 1),
            "loss": self.loss,
            **found,
        }
        self.curve.append(entry)
        alphas = " ".join(f"{alpha:.3f}" for alpha in found["alpha"])
        report(
            f"step {self.step:>6}  loss {self.loss:.3f}  alpha {alphas}  tau {found['tau']:.2f}  "
            f"overlap {found['overlap'][0]:.3f}"
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def _describe(self) -> str:
        """What must be the same for a run to go on."""
        parts = {**asdict(self.settings), **self.method.metadata(), "loss": self.method.loss_name}
        return json.dumps({**parts, "texts": self.texts.hash()}, sort_keys=True)

    def save(self) -> None:
        """Write the checkpoint; the older one stays until this one is whole."""
        state = {
            "fingerprint": self._fingerprint,
            "module": trained_state(self.method.module),
            "optimizer": self.optimizer.state_dict(),
            "progress": {key: getattr(self, key) for key in _PROGRESS},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f"{self.path.name}.part")
        torch.save(state, part)
        os.replace(part, self.path)

    def _load(self) -> None:
        if not self.path.exists():
            return
        try:
            state = torch.load(self.path, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(
                f"{self.path} is damaged ({error}): delete it and train anew."
            ) from error
        if state["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"{self.path} is of a run with other settings or texts: delete it, or name another "
                "place."
            )
        load_trained_state(self.method.module, state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        for key, value in state["progress"].items():
            setattr(self, key, value)


_PROGRESS = ("step", "places", "seconds", "loss", "curve")


def _groups(module: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices decay; norms and biases do not."""
    trained = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim > 1]
    vectors = [p for p in trained if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
