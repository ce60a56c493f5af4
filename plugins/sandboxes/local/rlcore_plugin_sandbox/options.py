"""The options of the sandbox of this machine. Users set ``level`` and ``readable`` as ``sandbox.level`` and ``sandbox.readable``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LocalSandboxOptions"]


class LocalSandboxOptions(BaseModel):
    """Options of ``local``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "none"] = Field(
        default="auto", description="isolation of programs; auto: namespaces, else landlock, else refused; none: no isolation at all"
    )
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
    packages: tuple[str, ...] = Field(
        default=("numpy",), description="installed packages that programs may import in addition to the standard library"
    )
