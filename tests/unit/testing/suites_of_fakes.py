"""The suites, pointed at the fakes: what the fakes are held to, and what the zoo spoils piece by piece."""

from __future__ import annotations

import shutil
import weakref
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from uncalled import UncalledObjective

from rlcore.contracts.interfaces import InferenceBackend, InferenceContext, Objective, TrainingBackend, TrainingContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Message, RewardInput
from rlcore.testing import (
    AdvantageSuite,
    EngineTransferSuite,
    FakeInference,
    FakeInferenceOptions,
    FakePolicy,
    FakeTokenizer,
    FakeTraining,
    InferenceBackendSuite,
    LossSuite,
    RewardSuite,
    TrainingBackendSuite,
    fake_plugin,
    write_fake_model,
)
from rlcore.testing.algorithms.fake_algorithms import FakeEstimator, FakeLoss
from rlcore.testing.fake_plugin import rlcore_register_rewards
from rlcore.testing.rewards.fake_reward import FakeReward, FakeRewardOptions
from rlcore.testing.training.fake_training import FakeTrainingOptions
from rlcore.testing.transfers.fake_collective import FakeCollective

CHARACTERS = "abcdefgh"


class FakeRewardSuite(RewardSuite):
    spec = rlcore_register_rewards()[0]
    options = FakeRewardOptions(correct=2.0)

    def make(self) -> FakeReward:
        return FakeReward(self.options)

    def honest(self) -> RewardInput:
        return RewardInput(messages=(Message(role="user", content="say cab"),), columns={"gt_answer": "cab", "other": [1]}, text=" cab ")

    def wrong(self) -> RewardInput:
        return RewardInput(messages=(Message(role="user", content="say cab"),), columns={"gt_answer": "cab", "other": [1]}, text="abc")


class FakeEstimatorSuite(AdvantageSuite):
    def make(self) -> FakeEstimator:
        return FakeEstimator()


class FakeLossSuite(LossSuite):
    def make(self) -> FakeLoss:
        return FakeLoss()


class FakeEngineSuite(InferenceBackendSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_inference_backends() if spec.name == "fake")
    stop_ids = frozenset({0})
    vocabulary = len(FakeTokenizer(CHARACTERS))
    tolerance = 1e-6
    swaps = True
    max_tokens = 64
    closing_seconds = 0.5
    in_flight = InFlight.FINISH
    continues = False
    tells = False
    engine: type[FakeInference] = FakeInference

    @cached_property
    def folder(self) -> str:
        folder = Path(mkdtemp(prefix="rlcore-test-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return str(write_fake_model(folder, CHARACTERS, seed=0, scale=0.5))

    def transfer(self) -> FakeCollective:
        return FakeCollective()

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=self.folder, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=prompts_per_forward, max_tokens=self.max_tokens
        )
        return self.engine(context, FakeInferenceOptions(in_flight=self.in_flight, continues=self.continues, tells=self.tells))

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot.of(version, dict(FakePolicy.random(self.vocabulary, version, 0.5).tensors()))

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4], [3, 6, 6, 4], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return FakeTokenizer(CHARACTERS).decode(token_ids)

    def encode(self, text: str) -> list[int]:
        return FakeTokenizer(CHARACTERS).encode(text)

    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return FakePolicy.random(self.vocabulary, version, 0.5).logits(token_ids)


class FakeTrainerSuite(TrainingBackendSuite):
    layout_marks = (pytest.mark.full,)
    spec = next(spec for spec in fake_plugin.rlcore_register_training_backends() if spec.name == "fake")
    vocabulary = len(FakeTokenizer(CHARACTERS))
    tolerance = 1e-5
    optimizer = "adam"
    layout_drift = 1e-4  # weights in float32, everything else in float64
    trainer: type[FakeTraining] = FakeTraining

    def forward(self, model: str, token_ids: np.ndarray) -> np.ndarray:
        return FakePolicy.load(model).logits(token_ids)

    def objective(self) -> Objective:
        return UncalledObjective()

    def make(self, context: TrainingContext) -> TrainingBackend:
        return self.trainer(context, FakeTrainingOptions(optimizer=self.optimizer))

    def model(self) -> str:
        folder = self.scratch / "start"
        return str(folder if folder.is_dir() else write_fake_model(folder, CHARACTERS))


JOINED_IDS = np.array([3, 5, 6, 7, 4], np.int32)


def drawn_policy(version: int) -> FakePolicy:
    """The weights of a version, clearly different for different ones."""
    return FakePolicy.random(len(FakeTokenizer(CHARACTERS)), version, 0.5)


class FakeCollectiveSuite(EngineTransferSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_weight_transfers() if spec.name == "fake_collective")
    sequence = tuple(JOINED_IDS.tolist())
    tolerance = 1e-6
    engine: type[FakeInference] = FakeInference

    @cached_property
    def folder(self) -> Path:
        folder = Path(mkdtemp(prefix="rlcore-test-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return write_fake_model(folder, CHARACTERS, seed=0, scale=0.5)

    def make(self) -> FakeCollective:
        return FakeCollective()

    def make_engine(self) -> InferenceBackend:
        context = InferenceContext(
            model=str(self.folder), tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=4, max_tokens=16, tensor_parallel=2
        )
        made: InferenceBackend = self.engine(context)
        return made

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot.of(version, dict(drawn_policy(version).tensors()))

    def scores(self, version: int) -> np.ndarray:
        return drawn_policy(version).logprobs(JOINED_IDS).astype(np.float32)
