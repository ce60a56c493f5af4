"""Whether producers and trainers can share their devices: ``[run] placement = "colocated"`` needs an engine that sleeps."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.errors import ConfigError

__all__ = ["check_sleeps"]


def check_sleeps(backend: Any, placement: str, name: str) -> None:
    """ConfigError where ``placement`` is colocated and the inference backend does not give its device back.

    ``backend``: a class or an instance, with ``capabilities``; ``name``: what the user calls it.
    """
    if placement == "colocated" and not backend.capabilities.sleeps:
        raise ConfigError(
            f"placement colocated lets generation and training take turns on one device, and inference backend {name} never gives its "
            "device back (capabilities.sleeps is False); type --placement split, or another --backend"
        )
