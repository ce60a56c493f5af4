"""Trainers whose entropies before an update are wrong, and losses that read them wrongly."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from suites_of_fakes import FakeTrainerSuite

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import TrainingContext
from rlcore.testing.algorithms.fake_algorithms import FakeLoss
from rlcore.testing.training.fake_pipeline import FakePipeline
from rlcore.testing.training.plain_objective import PlainObjective

__all__ = ["EntropySuite", "ForgetsToDeclareEntropy", "SurpriseForEntropy", "TurnsTheEntropies"]


class SurpriseForEntropy(FakePipeline):
    """The surprise of the sampled token, whose mean is the entropy."""

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        logprobs, _ = super().logprobs_and_entropies(batch)
        return logprobs, -logprobs


class TurnsTheEntropies(FakePipeline):
    """The entropies of another order of the tokens."""

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        logprobs, entropies = super().logprobs_and_entropies(batch)
        return logprobs, entropies[::-1].copy()


class EntropySuite(FakeTrainerSuite):
    rank_counts = (1,)
    spec = None
    pipeline: type[FakePipeline] = FakePipeline

    def objective(self) -> PlainObjective:
        return PlainObjective()

    def make(self, context: TrainingContext) -> FakePipeline:
        return self.pipeline(context)


class ForgetsToDeclareEntropy(FakeLoss):
    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        assert batch.entropy is not None
        return {"high": (batch.entropy > 1.0).astype(np.float32)}
