"""Options that users set. This module is imported whenever a run is configured, so it imports nothing of Harbor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["HarborOptions"]


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


_Folder = Annotated[Path, AfterValidator(_absolute)]


class HarborOptions(BaseModel):
    """Options of the environment ``harbor``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: str = Field(
        default="terminus-2", min_length=1, description="an agent of Harbor by its name, or a class of yours as package.module:Class"
    )
    agent_options: dict[str, Any] = Field(default={}, description="options of the agent, as Harbor's --agent-kwarg")
    path: tuple[_Folder, ...] = Field(
        default=(), description="folders that come first on PATH of a session, such as that of an installed agent"
    )
    readable: tuple[_Folder, ...] = Field(default=(), description="further folders that a session may read")
    reward: str = Field(default="reward", min_length=1, description="the reward of the task that counts, if its tests write several")
    on_missing_reward: Literal["mask", "zero"] = Field(
        default="mask", description="tests that fail or give no reward after the agent played are a failure of the environment, or give 0"
    )
    memory_mb: int = Field(default=2048, ge=64, description="memory of a session if the task names none, MiB")
    disk_mb: int = Field(default=512, ge=1, description="files of a session, MiB")
    processes: int = Field(default=256, ge=8, description="most processes and threads of a session")
