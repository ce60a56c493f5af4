"""Conformance suite for inference backends.

Everything is checked through the interface alone: submit, poll, cancel, the phases of an update, score. Model outputs are compared with the
forward pass of a trainer if the subclass gives one, else with ``score``; never with golden tokens.

An engine declares what it cannot do in its capabilities, or in ``lacks`` with a reason. Such rules are skipped with the reason.
"""

from __future__ import annotations

from rlcore.testing.inference.close_rules import CloseRules
from rlcore.testing.inference.failed_update_rules import FailedUpdateRules
from rlcore.testing.inference.generation_rules import GenerationRules
from rlcore.testing.inference.in_flight_rules import InFlightRules
from rlcore.testing.inference.sampling_rules import SamplingRules
from rlcore.testing.inference.weight_update_rules import WeightUpdateRules

__all__ = ["InferenceBackendSuite"]


class InferenceBackendSuite(GenerationRules, SamplingRules, InFlightRules, WeightUpdateRules, FailedUpdateRules, CloseRules):
    """The rules of an inference backend, through its interface alone: submit, poll, cancel, the phases of an update, score.

    A subclass gives ``make``, ``snapshot``, ``prompts`` and those attributes of ``EngineSuite`` that fit the engine. ``forward`` makes it
    strict: without it, a mistake that ``score`` shares is not seen.
    """
