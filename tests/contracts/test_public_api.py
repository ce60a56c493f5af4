"""The public surface changes on purpose only: whoever changes it changes this list, the version and the changelog."""

from __future__ import annotations

import rlcore.api

FROZEN = """
API_VERSION AdvantageEstimator AdvantageSpec AlgorithmSpec AsyncReward AuditCase Completion ConfigError DataError Finish Group InFlight
InferenceBackend InferenceBackendSpec InferenceCapabilities InferenceContext InfrastructureError Kind Lease Loss LossBatch LossSpec
Message Need Normalisers Objective OptimizerSettings Outcome PluginError PluginKind Probe Prompt Request Reward RewardBatch RewardInput
RewardSpec RlcoreError Rollout RunError RunInfo Sampling SandboxError Score Segment Snapshot Tensor Tokenizer Tracker TrackerSpec
TrainBatch TrainingBackend TrainingBackendSpec TrainingCapabilities TrainingContext UsageError WeightsError Which hookimpl
"""


def test_the_surface_is_what_it_was() -> None:
    assert sorted(rlcore.api.__all__) == sorted(FROZEN.split())
    assert rlcore.api.API_VERSION == "1.0"


def test_every_public_name_is_there_and_documented() -> None:
    for name in rlcore.api.__all__:
        value = getattr(rlcore.api, name)
        assert isinstance(value, str) or value.__doc__, name


def test_nothing_else_looks_public() -> None:
    import types

    extra = {name for name, value in vars(rlcore.api).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)}
    assert extra - set(rlcore.api.__all__) == {"annotations"}
