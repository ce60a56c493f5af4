"""Model FLOPs utilisation (MFU): the FLOPs of an update as a share of those that its devices could have computed in the same time."""

from __future__ import annotations

import torch

__all__ = ["peak_flops", "utilisation"]

_PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "A10": 125e12}
"""Dense bfloat16 FLOPs per second by a part of the device's name, from NVIDIA's data sheets. A longer name comes before its prefix."""
_PASSES = 3
"""One forward pass, and a backward pass that counts as two. Recomputation by gradient checkpointing does not count as work of the model."""


def peak_flops(device: torch.device, dtype: str) -> float | None:
    """Return the peak FLOPs per second of one device in this precision; None if it is not known."""
    if device.type != "cuda" or dtype != "bfloat16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAKS.items() if part in name), None)


def utilisation(parameters: int, tokens: float, seconds: float, devices: int, peak: float) -> float:
    """Return the utilisation in [0, 1]: 2 FLOPs per weight and token for each of the three passes, over ``peak`` on every device.

    FLOPs of attention are not counted. Source: PaLM (arXiv 2204.02311), appendix B, which adds them: at 4 k tokens and 7 B weights a tenth
    more.
    """
    return 2 * _PASSES * parameters * tokens / (seconds * devices * peak)
