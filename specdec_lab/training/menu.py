"""The methods that can be trained, by name."""

from __future__ import annotations

from specdec_lab.training.draft_model_method import DraftModelMethod
from specdec_lab.training.methods import Method
from specdec_lab.training.mlp_method import MLPSpeculatorMethod

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (MLPSpeculatorMethod, DraftModelMethod)
}
