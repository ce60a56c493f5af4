"""The probe: one fixed sequence, whose log probability the trainer and a receiver must agree on after every swap."""

from __future__ import annotations

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe

__all__ = ["check_probe", "mean_gap_tolerance", "probe_tolerance"]

_TOLERANCE = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
_MEAN_GAP = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.05, "float16": 0.02}
# Largest difference in nats of one token. fp32 engines agree to 2e-5, bf16 against fp32 was seen to differ by 0.24.


def probe_tolerance(*dtypes: str) -> float:
    """The tolerance between two computations of these dtypes: that of the coarser one."""
    return max(_TOLERANCE[dtype] for dtype in dtypes)


def mean_gap_tolerance(*dtypes: str) -> float:
    """The largest usual mean difference over many tokens, in nats: rounding averages out, a wrong mask does not."""
    return max(_MEAN_GAP[dtype] for dtype in dtypes)


def check_probe(probe: Probe, served: np.ndarray, *, version: int, producer: str) -> None:
    """Raise WeightsError where a producer's log probabilities float32[T-1] are not the trainer's."""
    gap = float(np.max(np.abs(served - probe.logprobs))) if served.shape == probe.logprobs.shape else float("inf")
    if not gap <= probe.tolerance:
        raise WeightsError(
            f"producer {producer} does not serve version {version}: its probe log probabilities differ from the trainer's by "
            f"{gap:.3g} nats where {probe.tolerance:g} is allowed; check that its backend loaded every tensor"
        )
