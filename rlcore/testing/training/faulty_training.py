"""A fake trainer with one fault, which an option chooses."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective, TrainingContext
from rlcore.contracts.runtime_interface import ENVIRONMENT
from rlcore.testing.training.fake_training import FakeTraining, FakeTrainingOptions
from rlcore.testing.weights import HostSource

__all__ = ["FaultyTraining", "FaultyTrainingOptions"]


class FaultyTrainingOptions(FakeTrainingOptions):
    """Options of the ``faulty`` training backend."""

    fault: Literal["drops", "nan", "dies", "memory", "save", "other"] = Field(
        ...,
        description="drops: weight_source leaves the last tensor out; nan: loss and weights of the second update are not numbers; "
        "dies: the second update raises; memory: it runs out of memory; save: the disk is full when it writes beside the training; "
        "other: in an environment of its own it computes another model beyond the first 32 tokens of a sequence.",
    )


class FaultyTraining(FakeTraining):
    """A fake trainer with one fault."""

    def __init__(self, context: TrainingContext | None, options: FaultyTrainingOptions) -> None:
        super().__init__(context, options)
        self.fault = options.fault

    def weight_source(self) -> HostSource:
        """Return all weights, or all but one."""
        weights = list(self.policy.tensors())
        return HostSource(dict(weights[:-1] if self.fault == "drops" else weights))

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """Return log probabilities, with fault ``other`` wrong ones."""
        logprobs = super().probe(token_ids)
        if self.fault == "other" and ENVIRONMENT in os.environ:
            logprobs[32:] += 0.1
        return logprobs

    def save(self, folder: Path) -> Future[None] | None:
        """Write the state, or fail after the call, with fault ``save``."""
        return self._written(_fill_up) if self.fault == "save" else super().save(folder)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Take one step; the second fails as the fault says."""
        second = self.optimizer.steps == 1
        if second and self.fault == "dies":
            raise RuntimeError("the faulty trainer died")
        if second and self.fault == "memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes. Error code 12")
        metrics = super().update(batch, objective)
        if second and self.fault == "nan":
            self.policy = type(self.policy)(self.policy.last * np.nan, self.policy.pair)
            return {**metrics, "loss": float("nan"), "grad_norm": float("nan")}
        return metrics


def _fill_up() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
