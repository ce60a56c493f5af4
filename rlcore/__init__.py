"""rlcore: reinforcement learning of language models on verifiable rewards, as plugins around a small core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.entry import train

__all__ = ["__version__", "train"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "train":
        from rlcore.entry import train

        return train
    raise AttributeError(f"module 'rlcore' has no attribute {name!r}")
