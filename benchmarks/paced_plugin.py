"""A plugin module that offers the backends ``paced``, whose speed is set. It has no entry point: benchmarks and their tests activate it."""

from __future__ import annotations

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, TrainingBackendSpec, hookimpl
from rlcore.testing.fake_plugin import FAKE_TRAINING

rlcore_api = "2.0"

PACED_INFERENCE = InferenceCapabilities(in_flight=InFlight.RESUME, counter_noise=True, implementation="fake")


@hookimpl
def rlcore_register_inference_backends() -> list[InferenceBackendSpec]:
    """Return the engine."""
    return [
        InferenceBackendSpec(
            name="paced",
            target="benchmarks.paced:PacedInference",
            config="benchmarks.paced:PacedInferenceOptions",
            summary="Sleeps as long as an engine of the given speed would take; computes nothing.",
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            capabilities=PACED_INFERENCE,
        )
    ]


@hookimpl
def rlcore_register_training_backends() -> list[TrainingBackendSpec]:
    """Return the trainer."""
    return [
        TrainingBackendSpec(
            name="paced",
            target="benchmarks.paced:PacedTraining",
            config="benchmarks.paced:PacedTrainingOptions",
            summary="Sleeps through every optimizer step; learns nothing.",
            capabilities=FAKE_TRAINING,
        )
    ]
