"""Load one complete version of the weights into an engine, bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, RemoteSnapshot, Snapshot

__all__ = ["update_engine"]


def update_engine(
    engine: InferenceBackend, snapshot: Snapshot, max_bytes: int = BUCKET_BYTES, *, begun: Callable[[], None] = lambda: None
) -> int:
    """Begin an update, pass every bucket of at most ``max_bytes``, and finish. Return the version that the engine says it serves.

    For weights of the engine's own transfer, the engine first joins the group of a new epoch. Raises WeightsError, naming the bucket, for a
    bucket that is missing, repeated, or of another version or epoch. Also raises it for an epoch that decreases, and for a kind of weights
    that the engine does not accept.

    :param begun: called after ``begin_update``. An error raised later may leave the engine with a mixture of old and new weights."""
    if snapshot.kind not in engine.capabilities.kinds:
        raise WeightsError(
            f"version {snapshot.version} is of kind {snapshot.kind}, and {type(engine).__name__} accepts "
            f"{', '.join(sorted(engine.capabilities.kinds))} (capabilities.kinds)"
        )
    epoch = _joined(engine, snapshot) if isinstance(snapshot, RemoteSnapshot) else -1
    engine.begin_update(snapshot.version, snapshot.manifest(), engine.capabilities.in_flight)
    begun()
    for index, bucket in enumerate(snapshot.buckets(max_bytes)):
        if (bucket.version, bucket.index) != (snapshot.version, index):
            raise WeightsError(
                f"bucket {bucket.index} of version {bucket.version} arrived instead of bucket {index} of version {snapshot.version}"
            )
        if bucket.epoch != epoch:
            raise WeightsError(
                f"bucket {index} of version {snapshot.version} is of epoch {bucket.epoch}, and the version is of epoch {epoch}"
            )
        engine.receive(bucket)
    return engine.finish_update()


def _joined(engine: InferenceBackend, snapshot: RemoteSnapshot) -> int:
    """Return the epoch of the group that sends the snapshot, after making the engine a member of it."""
    if snapshot.epoch < engine.epoch:
        raise WeightsError(
            f"version {snapshot.version} comes by epoch {snapshot.epoch} of its transfer, and {type(engine).__name__} is a member of epoch "
            f"{engine.epoch}; epochs must not decrease"
        )
    if snapshot.epoch > engine.epoch:
        engine.connect(snapshot.info, snapshot.epoch)
        engine.epoch = snapshot.epoch
    return snapshot.epoch
