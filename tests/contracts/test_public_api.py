"""The public surface changes on purpose only: whoever changes it changes this list, the version and the changelog."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys

import pytest

import rlcore.api

FROZEN = """
API_VERSION AdvantageEstimator AdvantageSpec Aggregation AggregationSpec AlgorithmSpec AsyncReward AuditCase Bucket CommandSpec
Completion ConfigError Controller ControllerSpec ConversationSpec Correction CorrectionSpec DataError DataSourceSpec Decision
Draw DrawResult EnvironmentSpec
FinishReason Group GroupFilter GroupFilterSpec InFlight InferenceBackend
InferenceBackendSpec InferenceCapabilities InferenceContext InfrastructureError KlEstimator KlSpec LearningRateSchedule
LearningRateScheduleSpec Lease LoraSettings Loss LossBatch
LossSpec Message ModelHook ModelHookSpec
ModelRole Need Normalisers Objective OptimizerFactory OptimizerSettings OptimizerSpec
Outcome PendingSave PluginError PluginKind Prompt Request Reward
RewardBatch RewardDetail RewardInput RewardName
RewardSpec RlcoreError Rollout RowFormatSpec RunError RunInfo RuntimeSpec Sampler SamplerContext SamplerSpec Sampling SandboxError
SandboxSpec Score Segment Snapshot Tensor TensorInfo TokenDetails Tokenizer Tracker TrackerSpec TrainBatch TrainingBackend
TrainingBackendSpec TrainingCapabilities TrainingContext UsageError WeightSource WeightTransferSpec WeightsError WeightsKind
WeightsManifest hookimpl
"""


def test_the_surface_is_what_it_was() -> None:
    assert sorted(rlcore.api.__all__) == sorted(FROZEN.split())
    assert rlcore.api.API_VERSION == "2.0"


def test_every_public_name_is_there_and_documented() -> None:
    for name in rlcore.api.__all__:
        value = getattr(rlcore.api, name)
        assert isinstance(value, str) or value.__doc__, name


def test_nothing_else_looks_public() -> None:
    import types

    extra = {name for name, value in vars(rlcore.api).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)}
    assert extra - set(rlcore.api.__all__) == {"TYPE_CHECKING", "annotations", "lazy_names"}


def test_a_spec_and_the_marker_of_hooks_load_no_numpy() -> None:
    names = "API_VERSION, CommandSpec, PluginError, hookimpl"
    code = f"import sys; from rlcore.api import {names}; print(sorted({{'numpy', 'asyncio'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_name_that_is_not_public_is_not_found() -> None:
    for name in ("Spec", "annotations_", "numpy"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(rlcore.api, name)


def test_help_fits_a_few_screens_and_names_everything() -> None:
    for name in rlcore.api.__all__:
        assert getattr(rlcore.api, name) is not None  # what was used before does not lengthen it
    lines = pydoc.plain(pydoc.render_doc(rlcore.api)).splitlines()
    assert 40 < len(lines) <= 60
    words = set(re.findall(r"\w+", rlcore.api.__doc__ or ""))
    assert set(rlcore.api.__all__) - words == set()
    assert max(map(len, (rlcore.api.__doc__ or "").splitlines())) <= 140


def test_help_of_one_name_is_whole() -> None:
    assert "check(self, columns" in pydoc.plain(pydoc.render_doc(rlcore.api.Reward))
