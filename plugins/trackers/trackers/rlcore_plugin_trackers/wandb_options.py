"""Options of the tracker ``wandb``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class WandbOptions(BaseModel):
    """The settings in ``[log.options.wandb]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["auto", "online", "offline", "disabled"] = Field(
        default="auto",
        description="auto: WANDB_MODE, else online if this machine has a W&B key, else offline",
    )
    project: str = Field(default="", description="project in W&B; empty: WANDB_PROJECT, or the project of the run")
    entity: str = Field(default="", description="user or team that owns the project; empty: WANDB_ENTITY, or the owner of the key")
    name: str = Field(default="", description="name of the run; empty: WANDB_NAME, or that of the run folder")
    group: str = Field(default="", description="group of the run; empty: WANDB_RUN_GROUP, or none")
    tags: tuple[str, ...] = Field(default=(), description="tags of the run")
    dir: str = Field(default="", description="folder in which a folder wandb is made; empty: the run folder")
    system_metrics: bool = Field(default=True, description="also sample processor, memory and GPU of this machine, every 15 s")
    timeout: float = Field(
        default=30.0, gt=0, description="seconds to wait for W&B's server: when the run begins, and for unsent figures when it ends"
    )
