"""Model FLOPs utilisation (MFU): what an update computed, of what its devices could have computed in its time."""

from __future__ import annotations

import torch

__all__ = ["peak_flops", "utilisation"]

_PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "A10": 125e12}
"""Dense bfloat16 FLOPs a second by a part of the device's name, from NVIDIA's data sheets; a longer name stands before its beginning."""
_PASSES = 3
"""Forward, and a backward that is worth two: what gradients checkpointing computes again is no work of the model."""


def peak_flops(device: torch.device, dtype: str) -> float | None:
    """FLOPs a second that one device can do at its most in this precision; None if that is not known."""
    if device.type != "cuda" or dtype != "bfloat16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAKS.items() if part in name), None)


def utilisation(parameters: int, tokens: float, seconds: float, devices: int, peak: float) -> float:
    """In [0, 1]: 2 FLOPs a weight and token for each of the three passes, without those of attention, over ``peak`` on every device.

    Source: PaLM (arXiv 2204.02311), appendix B, which adds attention's: at 4 k tokens and 7 B weights a tenth more."""
    return 2 * _PASSES * parameters * tokens / (seconds * devices * peak)
