"""Engines that take new weights wrongly, and one that writes them in place and does it right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.snapshots import Bucket, Snapshot, Tensor, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.testing import FakeInference, FakePolicy
from rlcore.testing.fake_plugin import FAKE_JOINING_INFERENCE
from rlcore.testing.transfers.fake_group_rank import FakeGroupRank


class WritesInPlace(FakeInference):
    """No bug: new weights are written over the old ones, so it serves nothing from the first bucket to the end of a whole update."""

    torn = False

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        super().begin_update(version, manifest, in_flight)
        self.torn = True

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        write(self, dict(bucket.tensors))

    def finish_update(self) -> int:
        version = super().finish_update()
        self.torn = False
        return version

    def _require_weights(self) -> None:
        super()._require_weights()
        if self.torn:
            raise RunError("an update of the engine that writes in place broke off: update its weights first")


def write(engine: FakeInference, tensors: dict[str, Tensor]) -> None:
    engine._policy = engine._policy.replaced(dict(engine._policy.tensors()) | tensors)


class ServesTorn(WritesInPlace):
    """Nobody told it that the update broke off."""

    def _require_weights(self) -> None:
        pass


class SwapsHalf(FakeInference):
    """Writes bucket by bucket into what it serves, and says that it swaps."""

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        write(self, dict(bucket.tensors))


class ChecksAtTheEnd(FakeInference):
    """What does not fit the model is noticed when it is loaded."""

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        super().begin_update(version, fitting(self._policy), in_flight)

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        if any(tensor.shape != self._policy.arrays()[name].shape for name, tensor in bucket.tensors.items()):
            raise WeightsError("too late")


def fitting(policy: FakePolicy) -> WeightsManifest:
    """The manifest that the model expects."""
    return Snapshot.of(0, dict(policy.tensors())).manifest()


class NamesNoTensor(FakeInference):
    """Something is wrong, it says."""

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        try:
            super().begin_update(version, manifest, in_flight)
        except WeightsError as error:
            raise WeightsError("the weights do not fit the model") from error

    def finish_update(self) -> int:
        try:
            return super().finish_update()
        except WeightsError as error:
            raise WeightsError("the weights are not whole") from error


class KeepsMissing(FakeInference):
    """``strict=False``: a tensor that did not come keeps its old value."""

    def finish_update(self) -> int:
        coming = self._update_under_way()
        coming._tensors = dict(self._policy.tensors()) | coming._tensors
        return super().finish_update()


class CountsTensors(FakeInference):
    """As many tensors as were announced are all of them."""

    came = 0

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        super().begin_update(version, manifest, in_flight)
        self.came = 0

    def receive(self, bucket: Bucket) -> None:
        coming = self._update_under_way()
        coming._due += [name for name in bucket.tensors if name not in coming._due]
        self.came += len(bucket.tensors)
        super().receive(bucket)

    def finish_update(self) -> int:
        coming = self._update_under_way()
        if self.came == len(self._policy.arrays()):
            coming._tensors = dict(self._policy.tensors()) | coming._tensors
        return super().finish_update()


class KeepsTheLastBucket(FakeInference):
    """Each bucket takes the place of the one before."""

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        self._update_under_way()._tensors = dict(self._policy.tensors()) | dict(bucket.tensors)


class KeepsTheArrays(FakeInference):
    """Loads at the end what it was lent in ``receive``."""

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        self._update_under_way()._tensors.update(bucket.tensors)


class JoinsByItself(FakeInference):
    """No bug: takes weights by ``fake_collective``, in one process, as its only rank."""

    capabilities = FAKE_JOINING_INFERENCE
    group: FakeGroupRank | None = None

    def describe(self) -> dict[str, int]:
        return {"ranks": 1}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        if self.group is not None:
            self.group.close()
        self.group = FakeGroupRank(info, 0)

    def receive(self, bucket: Bucket) -> None:
        if bucket.info:
            assert self.group is not None
            arrays = self.group.take(bucket.version, bucket.info["tensors"])
            tensors = {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in arrays.items()}
            bucket = replace(bucket, tensors=tensors)
        super().receive(bucket)

    def close(self) -> None:
        super().close()
        if self.group is not None:
            self.group.close()


class JoinsOnce(JoinsByItself):
    """A group is a group: it stays in the first one."""

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        if self.group is None:
            super().connect(info, epoch)


class TakesNothing(JoinsByItself):
    """Reads what comes, and loads it nowhere."""

    def finish_update(self) -> int:
        served = self._policy
        version = super().finish_update()
        self._policy = served
        return version


class JoinsWhatItDoesNotName(FakeInference):
    """Says that it takes weights through the host alone, and lets itself be connected."""

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        pass
