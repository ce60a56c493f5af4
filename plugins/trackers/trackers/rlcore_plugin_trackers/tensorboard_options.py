"""Options of the tracker ``tensorboard``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TensorBoardOptions(BaseModel):
    """What stands in ``[log.options.tensorboard]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    log_dir: str = Field(
        default="tensorboard",
        min_length=1,
        description="folder in the run folder; an absolute one is shared by runs, each has PROJECT/RUN in it",
    )
    hparams: bool = Field(default=True, description="write the settings for the tab HPARAMS too, which compares runs")
