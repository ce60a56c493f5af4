"""The devices that this machine seems to have, found without a driver call."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

__all__ = ["cuda_devices", "device_of"]

_OTHER_NODES = ("dxg", "nvhost-gpu", "nvgpu", "kfd")
"""Device files of GPUs that torch calls cuda and that have no file /dev/nvidia0."""


def cuda_devices(dev: Path = Path("/dev")) -> int | None:
    """Return the largest number of CUDA devices that a process can find here; None if device files do not tell.

    It calls no driver, because that takes long, and a process that has called one cannot be forked.
    """
    if sys.platform != "linux" or any((dev / name).exists() for name in _OTHER_NODES):
        return None
    count, visible = len(list(dev.glob("nvidia[0-9]*"))), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    return min(count, len([name for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]))


def device_of(typed: str, offered: Collection[str] | None) -> str:
    """Return the device on which a backend computes here, with ``auto`` resolved. ``auto`` stays if only the backend itself can tell.

    :param offered: the devices that the backend declares, None if it declares none.
    """
    if typed != "auto":
        return typed
    none = sys.platform == "darwin" or (offered is not None and "cuda" not in offered)
    count = 0 if none else cuda_devices()
    if count == 0 and set(offered or ()) <= {"cpu", "cuda"}:
        return "cpu"
    return "cuda" if count and offered is not None else "auto"
