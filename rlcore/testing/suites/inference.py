"""What every inference backend must do.

Everything is checked through the interface alone: submit, poll, cancel, the phases of an update, score. Model outputs are compared with
``score``, never with golden tokens.
"""

from __future__ import annotations

from rlcore.testing.suites.generation import GenerationRules
from rlcore.testing.suites.streaming import StreamingRules
from rlcore.testing.suites.weight_rules import WeightRules

__all__ = ["InferenceBackendSuite"]


class InferenceBackendSuite(GenerationRules, StreamingRules, WeightRules):
    """Subclass this one: ``make``, ``snapshot``, ``prompts``, and what of ``EngineSuite``'s attributes fits the engine."""
