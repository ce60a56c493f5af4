"""The options of the sandbox of this machine. Users set ``level`` and ``readable`` as ``sandbox.level`` and ``sandbox.readable``."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["LocalSandboxOptions"]

_TAKEN = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "proc", "sys", "dev", "tmp", "jail", "packages", "python")
"""Folders at the top of each jail."""


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
    session_folders: tuple[str, ...] = Field(
        default=(), description="empty folders at the top, such as /app, in which a session may write as in /tmp"
    )
    session_terminals: int = Field(
        default=0, ge=0, le=64, description="pseudo terminals that a session may have at once, for programs such as tmux"
    )

    @field_validator("session_folders")
    @classmethod
    def _are_new(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        for folder in folders:
            parts = PurePosixPath(folder).parts
            if len(parts) != 2 or parts[0] != "/" or parts[1] in (*_TAKEN, "..") or folder != f"/{parts[1]}":
                raise ValueError(f"{folder!r} must be a folder directly below /, such as /app, and none of those of the system")
        return folders
