"""What users set of a sandbox: a plain model that a reward puts into its own options."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SandboxOptions"]


class SandboxOptions(BaseModel):
    """How programs are walled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "none"] = Field(
        default="auto", description="walls around a program; auto: namespaces, else landlock, else refused; none: no walls at all"
    )
    backend: str = Field(default="local", description="local, or package.module:Class of a sandbox elsewhere")
    backend_options: dict[str, Any] = Field(default={}, description="options of that class")
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
