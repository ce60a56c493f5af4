"""Options of the tracker ``tensorboard``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TensorBoardOptions(BaseModel):
    """The settings in ``[log.options.tensorboard]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    log_dir: str = Field(
        default="tensorboard",
        min_length=1,
        description="folder in the run folder; an absolute one is shared by runs, each in PROJECT/RUN",
    )
    hparams: bool = Field(default=True, description="also write the settings for the tab HPARAMS, which compares runs")
