"""Stands in for SGLang's compiled kernels where they are not installed, which is on CPUs. What SGLang computes without them, by torch, is what
runs; a kernel that it cannot do without says so when it is called."""

from __future__ import annotations

from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> None:
        raise NotImplementedError(f"SGLang asks for its kernel {name}, and its kernels are not part of this environment")

    return missing
