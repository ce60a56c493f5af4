"""rlcore: reinforcement learning of language models on verifiable rewards, as plugins around a small core.

``train`` trains. ``evaluate``, ``score`` and ``load_run`` are functions of the distribution ``rlcore-plugin-tools``, which also reads the
arguments of ``train``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.entry import train

__all__ = ["__version__", "train"]

__version__ = "0.1.0"

_COMMAND_OF = {"evaluate": "eval", "score": "score", "load_run": "runs"}
"""Functions by the commands that do the same, whose plugin provides them."""


def __getattr__(name: str) -> Any:
    if name == "train":
        from rlcore.entry import train

        return train
    if name in _COMMAND_OF:
        from rlcore.entry import function_of

        return function_of(_COMMAND_OF[name], name)
    raise AttributeError(f"module 'rlcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_COMMAND_OF})
