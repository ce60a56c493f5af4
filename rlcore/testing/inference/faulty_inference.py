"""A fake engine with one fault, which an option chooses."""

from __future__ import annotations

import threading
from typing import Literal

from pydantic import Field

from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Bucket, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion
from rlcore.testing.inference.fake_inference import FakeInference, FakeInferenceOptions

__all__ = ["FaultyInference", "FaultyInferenceOptions"]


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
