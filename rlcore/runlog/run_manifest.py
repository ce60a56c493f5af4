"""What a run was made of: versions, plugins as attested, seed, data, machine. Enough to tell two runs apart a year later."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import rlcore

__all__ = ["build_manifest"]

_WATCHED = ("numpy", "pluggy", "pydantic", "torch", "transformers", "tokenizers", "safetensors", "ray", "vllm", "sglang", "math-verify")


def build_manifest(
    *, seed: int, data: Mapping[str, str], attestations: Iterable[Any], origins: Mapping[str, Any], command: list[str] | None = None
) -> dict[str, Any]:
    """A plain, JSON-able record. ``data`` maps a data set to its fingerprint; ``attestations`` and ``origins`` are dataclasses."""
    return {
        "rlcore": rlcore.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": dict(_installed()),
        "seed": seed,
        "data": dict(data),
        "plugins": [asdict(item) if is_dataclass(item) and not isinstance(item, type) else item for item in attestations],
        "origins": {path: str(origin) for path, origin in origins.items()},
        "command": command if command is not None else sys.argv,
    }


def _installed() -> Iterable[tuple[str, str]]:
    for name in _WATCHED:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
