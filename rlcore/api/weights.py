"""For authors of weight transfers, which bring weights from the trainer to the engines.

A plugin registers a ``WeightTransferSpec`` with ``rlcore_register_weight_transfers``. Its target is a ``WeightTransfer``, which makes a
``Publisher`` at rank 0 of the trainer and a ``Receiver`` at each producer. The trainer is a ``WeightSource``, which the publisher copies
bucket by bucket.

The newest version wins. A snapshot is handed out complete, with every checksum verified, or not at all. Publishing waits only for the end
of a receiver that was given up. ``rlcore.testing.WeightTransferSuite`` checks these rules.

``HostLayout`` is for transfers through host memory. It knows the place of each tensor of a version in a buffer, and fills, seals, verifies
and reads the buffer. ``BackgroundPublisher`` and ``BackgroundReceiver`` of the library ``rlcore-plugin-workers`` already keep most of the
rules for such transfers. A subclass defines how one version in a buffer is sent, and how the next one is fetched.

An engine transfer (``WeightTransferSpec.way``) brings the bytes to the processes of the engine; the producer's process sees only a
``RemoteSnapshot``. ``rlcore.testing.transfers.fake_collective`` is one; ``EngineTransferSuite`` checks it together with its engine.
"""

from __future__ import annotations

from rlcore.contracts.errors import GroupBrokenError, WeightsError
from rlcore.contracts.snapshots import Probe, RemoteSnapshot, Snapshot, WeightSource, cut_into_buckets
from rlcore.contracts.weight_transfer import OnFailure, Publisher, Receiver, WeightTransfer
from rlcore.weights.host_layout import HostLayout

__all__ = [
    "GroupBrokenError",
    "HostLayout",
    "OnFailure",
    "Probe",
    "Publisher",
    "Receiver",
    "RemoteSnapshot",
    "Snapshot",
    "WeightSource",
    "WeightTransfer",
    "WeightsError",
    "cut_into_buckets",
]
