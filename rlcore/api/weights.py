"""Weights on their way from the trainer to the engines: what the author of a weight transfer needs.

A plugin registers a ``WeightTransferSpec`` by ``rlcore_register_weight_transfers``; its target is a ``WeightTransfer``, which makes a
``Publisher`` at rank 0 of the trainer and a ``Receiver`` at each producer. The trainer is a ``WeightSource``, which the publisher copies
bucket by bucket. The newest version wins; a snapshot is handed out whole, every checksum verified, or not at all; publishing waits
only for the end of a receiver that was given up. ``rlcore.testing.WeightTransferSuite`` checks these rules.

``HostLayout`` is for transfers through the memory of a host: it says where each tensor of a version lies in a buffer, and fills, seals,
verifies and reads it. ``BackgroundPublisher`` and ``BackgroundReceiver`` of the library ``rlcore-plugin-workers`` keep most of the rules
for them already: a child says how one version in a buffer is sent, and how the next one is fetched.

A transfer of engines' own (``WeightTransferSpec.way``) brings the bytes to the processes of the engine; the producer's process sees a
``RemoteSnapshot`` alone. ``rlcore.testing.transfers.fake_collective`` is one; ``EngineTransferSuite`` checks it together with its engine.
"""

from __future__ import annotations

from rlcore.contracts.errors import GroupBrokenError, WeightsError
from rlcore.contracts.snapshots import (
    Probe,
    RemoteSnapshot,
    Snapshot,
    WeightSource,
    cut_into_buckets,
)
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
