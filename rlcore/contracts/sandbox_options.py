"""What users set of a sandbox: a plain model that a reward puts into its own options."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SandboxOptions"]


class SandboxOptions(BaseModel):
    """How programs are walled in: which sandbox runs them, and what the user asks of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "remote", "none"] = Field(
        default="auto", description="walls around a program; auto: namespaces, else landlock, else refused; none: no walls at all"
    )
    backend: str = Field(default="local", description="the sandbox that runs programs: its name, ./file.py:Class, or package.module:Class")
    backend_options: dict[str, Any] = Field(default={}, description="options of that sandbox")
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
