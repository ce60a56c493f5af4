"""Weights on their way from the trainer to those who generate: versioned snapshots, whole or not at all."""

from rlcore.contracts.transport import OnFailure, Publisher, Receiver, WeightTransfer

__all__ = ["OnFailure", "Publisher", "Receiver", "WeightTransfer"]
