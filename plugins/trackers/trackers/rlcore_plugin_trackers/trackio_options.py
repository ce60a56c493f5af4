"""Options of the tracker ``trackio``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TrackioOptions(BaseModel):
    """The settings in ``[log.options.trackio]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str = Field(default="", description="Trackio's project; empty: the project of the run")
    name: str = Field(default="", description="name of the run; empty: that of its folder")
    group: str = Field(default="", description="group of the run in the dashboard")
    space_id: str = Field(default="", description="a Hugging Face Space (user/name); empty: TRACKIO_SPACE_ID, or this machine")
    bucket_id: str = Field(default="", description="the Bucket in which the Space stores its data; empty: Trackio's choice")
    dataset_id: str = Field(default="", description="a Dataset instead of the Bucket; Trackio advises against it")
    private: bool | None = Field(default=None, description="whether a new Space is private; unset: the account's default")
    system_metrics: bool = Field(default=True, description="also sample processor, memory and GPU of this machine, every 10 s")
