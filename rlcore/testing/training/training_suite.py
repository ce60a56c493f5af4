"""Conformance suite for training backends."""

from __future__ import annotations

from rlcore.testing.training.adapter_rules import AdapterRules
from rlcore.testing.training.checkpoint_rules import CheckpointRules
from rlcore.testing.training.chosen_optimizer_rules import ChosenOptimizerRules
from rlcore.testing.training.layout_suite import TrainingLayoutSuite
from rlcore.testing.training.reference_rules import ReferenceRules
from rlcore.testing.training.skipped_step_rules import SkippedStepRules
from rlcore.testing.training.update_rules import UpdateRules

__all__ = ["TrainingBackendSuite"]


class TrainingBackendSuite(
    UpdateRules, ReferenceRules, ChosenOptimizerRules, AdapterRules, SkippedStepRules, CheckpointRules, TrainingLayoutSuite
):
    """The rules of a training backend.

    A subclass gives ``make``, ``model``, ``vocabulary`` and those attributes of ``TrainerSuite`` that fit the backend.
    """
