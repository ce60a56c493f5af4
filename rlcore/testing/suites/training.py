"""What every training backend must do."""

from __future__ import annotations

from rlcore.testing.suites.adapting import AdapterRules
from rlcore.testing.suites.layouts import TrainingLayoutSuite
from rlcore.testing.suites.optimizing import OptimizerRules
from rlcore.testing.suites.persistence import PersistenceRules
from rlcore.testing.suites.skipping import SkipRules
from rlcore.testing.suites.updating import UpdateRules

__all__ = ["TrainingBackendSuite"]


class TrainingBackendSuite(UpdateRules, OptimizerRules, AdapterRules, SkipRules, PersistenceRules, TrainingLayoutSuite):
    """Subclass this one: ``make``, ``model``, ``vocabulary``, and what of ``TrainerSuite``'s attributes fits the backend."""
