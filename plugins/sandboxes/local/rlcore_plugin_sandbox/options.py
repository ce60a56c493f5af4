"""What users ask of the sandbox of this machine; ``level`` and ``readable`` are set as ``sandbox.level`` and ``sandbox.readable``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LocalSandboxOptions"]


class LocalSandboxOptions(BaseModel):
    """Options of ``local``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "none"] = Field(
        default="auto", description="walls around a program; auto: namespaces, else landlock, else refused; none: no walls at all"
    )
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
    packages: tuple[str, ...] = Field(
        default=("numpy",), description="installed packages that programs may import beside the standard library, where there are any"
    )
