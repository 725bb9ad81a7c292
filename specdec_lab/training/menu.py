"""The methods that can be trained, by name."""

from __future__ import annotations

from specdec_lab.decoding.target import Target
from specdec_lab.training.draft_model_method import DraftModelMethod
from specdec_lab.training.feature_methods import Eagle1Method, Eagle3Method, MTPMethod
from specdec_lab.training.methods import Method
from specdec_lab.training.mlp_method import MLPSpeculatorMethod
from specdec_lab.training.pard_method import PARDMethod

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        MLPSpeculatorMethod,
        DraftModelMethod,
        PARDMethod,
        MTPMethod,
        Eagle1Method,
        Eagle3Method,
    )
}


def all_hidden_layers(target: Target) -> set[int]:
    """Every layer whose states some method learns from."""
    return {layer for method in METHODS.values() for layer in method.hidden_layers(target)}
