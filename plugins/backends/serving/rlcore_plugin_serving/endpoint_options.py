"""The options in ``[inference.options]`` for the backend ``endpoint``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["EndpointOptions"]

_PORT = r"(:(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]?\d{1,4}))?"
_Address = Annotated[str, StringConstraints(pattern=rf"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]){_PORT}/?$")]


class EndpointOptions(BaseModel):
    """Options of the inference backend ``endpoint``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    addresses: tuple[_Address, ...] = Field(
        min_length=1, description="servers, each http://HOST:PORT or https://HOST:PORT; producer k of n takes every n-th, from the k-th on"
    )
    api_key_env: str | None = Field(default=None, description="name of the environment variable that holds the servers' key; none: no key")
    admin_key_env: str | None = Field(
        default=None, description="name of the variable with the key for commands that change weights; none: that of api_key_env"
    )
    shared_folder: Path | None = Field(
        default=None, description="folder that producers and servers see, for versions of the weights; none: no weights, so no training"
    )
    shared_folder_there: str | None = Field(default=None, description="path of that folder on the servers; none: the same path")
    start_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False, description="how long to wait until a server is healthy")
    silence_seconds: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="a server that should answer, and sends nothing for this long, counts as dead"
    )
    connections: int = Field(default=256, ge=1, description="most requests that one server has at a time")
    verify_weights: bool = Field(
        default=True, description="after an update compare the checksums that the servers compute of their weights, in one pass over them"
    )
