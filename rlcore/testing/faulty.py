"""Fakes with one fault each, chosen by option: what the core must notice and name."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import InferenceContext, Objective, TrainingContext
from rlcore.contracts.snapshots import Bucket, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion
from rlcore.registry.environments import ENVIRONMENT
from rlcore.testing.fake_inference import FakeInference, FakeInferenceOptions
from rlcore.testing.fake_training import FakeTraining, FakeTrainingOptions
from rlcore.testing.weights import HostSource

__all__ = ["FaultyInference", "FaultyInferenceOptions", "FaultyTraining", "FaultyTrainingOptions"]


class FaultyInferenceOptions(FakeInferenceOptions):
    """Options of the ``faulty`` inference backend."""

    fault: Literal["stale", "partial", "behind", "torn", "loses", "repeats", "dies", "memory", "hangs"] = Field(
        ...,
        description="stale: keeps the old weights and says new; partial: takes only the first tensor; behind: reports the version before; "
        "torn: writes in place and dies in its second update, in the second bucket or else at the end; "
        "loses: never answers the first request; repeats: answers the first request twice; dies: raises in the third poll with work; "
        "memory: runs out of memory there; hangs: never comes back from it.",
    )


class FaultyInference(FakeInference):
    """A fake engine with one fault."""

    def __init__(self, context: InferenceContext, options: FaultyInferenceOptions) -> None:
        super().__init__(context, options)
        self.fault = options.fault
        self._answered = 0
        self._polls = 0
        self._updates = 0

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Count."""
        super().begin_update(version, manifest, in_flight)
        self._updates += 1

    def receive(self, bucket: Bucket) -> None:
        """Take a bucket; ``torn`` serves it at once."""
        if bucket.index == 1:
            self._die_torn()
        super().receive(bucket)
        if self.fault == "torn":
            self._policy = self._policy.replaced(dict(self._policy.tensors()) | dict(bucket.tensors))

    def finish_update(self) -> int:
        """Swap the weights, or only say so."""
        self._die_torn()
        old = self._policy
        version = super().finish_update()
        if self.fault == "stale":
            self._policy = old
        elif self.fault == "partial":
            first, tensor = min(self._policy.tensors())
            self._policy = old.replaced(dict(old.tensors()) | {first: tensor})
        return version - 1 if self.fault == "behind" else version

    def _die_torn(self) -> None:
        if self.fault == "torn" and self._updates == 2:
            raise RuntimeError("the faulty engine died between two buckets")

    def poll(self, timeout: float) -> list[Completion]:
        """Answer, but not quite."""
        self._polls += bool(self._running or self._waiting)
        if self.fault == "dies" and self._polls == 3:
            raise RuntimeError("the faulty engine died")
        if self.fault == "memory" and self._polls == 3:
            raise MemoryError("Unable to allocate 7.00 TiB")
        if self.fault == "hangs" and self._polls == 3:
            threading.Event().wait()
        finished = super().poll(timeout)
        first = self._answered == 0 and bool(finished)
        self._answered += len(finished)
        if first and self.fault == "loses":
            return finished[1:]
        return [finished[0], *finished] if first and self.fault == "repeats" else finished


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
        """All weights, or all but one."""
        weights = list(self.policy.tensors())
        return HostSource(dict(weights[:-1] if self.fault == "drops" else weights))

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """As the weights have it, or not."""
        logprobs = super().probe(token_ids)
        if self.fault == "other" and ENVIRONMENT in os.environ:
            logprobs[32:] += 0.1
        return logprobs

    def save(self, folder: Path) -> Future[None] | None:
        """Written, or found too late not to be."""
        return self._written(_fill_up) if self.fault == "save" else super().save(folder)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """One step; the second goes wrong."""
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
