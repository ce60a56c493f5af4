"""Weights on their way from the trainer to the engines: what the author of a weight transfer needs.

A plugin registers a ``WeightTransferSpec`` by ``rlcore_register_weight_transfers``; its target is a ``WeightTransfer``, which makes a
``Publisher`` at rank 0 of the trainer and a ``Receiver`` at each producer. The newest version wins; a snapshot is handed out whole, every
checksum verified, or not at all; publishing never waits for a receiver. ``rlcore.testing.WeightTransferSuite`` checks these rules.

``BackgroundPublisher`` and ``BackgroundReceiver`` keep most of them already: a child says how one version is sent, and how the next one is
fetched. ``Manifest``, ``write_tensors`` and ``Follower`` turn a snapshot into one run of bytes and back.

This page will change when weights travel bucket by bucket.
"""

from __future__ import annotations

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, Tensor
from rlcore.contracts.specs import WeightTransferSpec
from rlcore.contracts.transport import OnFailure, Publisher, Receiver, WeightTransfer
from rlcore.weights.background import BackgroundPublisher, BackgroundReceiver
from rlcore.weights.manifest import Follower, Manifest, write_tensors

__all__ = [
    "BackgroundPublisher",
    "BackgroundReceiver",
    "Follower",
    "Manifest",
    "OnFailure",
    "Probe",
    "Publisher",
    "Receiver",
    "Snapshot",
    "Tensor",
    "WeightTransfer",
    "WeightTransferSpec",
    "WeightsError",
    "write_tensors",
]
