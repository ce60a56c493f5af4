"""What every inference backend must do.

Everything is checked through the interface alone: submit, poll, cancel, the phases of an update, score. Model outputs are compared with the
forward pass of a trainer if the subclass gives one, else with ``score``; never with golden tokens.

What an engine cannot do it declares: in its capabilities, or in ``lacks`` with a reason. Such rules are skipped with the reason.
"""

from __future__ import annotations

from rlcore.testing.suites.drawing import DrawingRules
from rlcore.testing.suites.generation import GenerationRules
from rlcore.testing.suites.leaving import LeavingRules
from rlcore.testing.suites.streaming import StreamingRules
from rlcore.testing.suites.torn_rules import TornRules
from rlcore.testing.suites.weight_rules import WeightRules

__all__ = ["InferenceBackendSuite"]


class InferenceBackendSuite(GenerationRules, DrawingRules, StreamingRules, WeightRules, TornRules, LeavingRules):
    """Subclass this one: ``make``, ``snapshot``, ``prompts``, and what of ``EngineSuite``'s attributes fits the engine. ``forward`` makes
    it strict: without it a mistake that ``score`` shares is not seen."""
