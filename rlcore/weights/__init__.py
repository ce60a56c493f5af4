"""Weights on their way from the trainer to those who generate: versioned snapshots, whole or not at all."""

from rlcore.contracts.transport import OnFailure, Publisher, Receiver, WeightTransfer
from rlcore.weights.probe import check_probe, mean_gap_tolerance, probe_tolerance

__all__ = ["OnFailure", "Publisher", "Receiver", "WeightTransfer", "check_probe", "mean_gap_tolerance", "probe_tolerance"]
