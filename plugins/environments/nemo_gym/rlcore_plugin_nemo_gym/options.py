"""Options of the environment ``nemo_gym``. This module is imported whenever a run is configured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from rlcore_plugin_workers.environment_folders import named_folder

from rlcore.api import ConfigError

__all__ = ["NemoGymOptions"]


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


_Folder = Annotated[Path, AfterValidator(_absolute)]


class NemoGymOptions(BaseModel):
    """Options of the environment ``nemo_gym``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    address: str = Field(default="", description="the address of a resources server that runs already, as `gym env start` names it")
    server: str = Field(
        default="",
        description="module:Class of a resources server that each process starts on a free port",
    )
    config: dict[str, Any] = Field(default={}, description="further settings of the server's config")
    python: _Folder | None = Field(
        default=None, description="virtual environment of the server; none: the one that `rlcore env build nemo-gym` makes"
    )
    folder: _Folder | None = Field(default=None, description="folder of your modules, in which the server starts; none: that of the run")
    start_seconds: float = Field(default=120.0, gt=0, description="time in which the server must answer after its start")
    message_seconds: float = Field(default=120.0, gt=0, description="longest time between a request to the server and its answer")
    max_steps: int = Field(default=64, ge=1, description="most answers of the policy in an episode, which is then verified")

    @model_validator(mode="after")
    def _complete(self) -> NemoGymOptions:
        if bool(self.address) == bool(self.server):
            raise ValueError("name one server: address, or server = module:Class")
        if self.address and not re.match(r"https?://[^/\s]", self.address):
            raise ValueError(f"{self.address!r} is not an address; write it with its protocol, such as http://127.0.0.1:8000")
        if self.server and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", self.server):
            raise ValueError(f"{self.server!r} is not a name of the form module:Class")
        if self.server and self.python is None:
            try:
                named_folder("nemo-gym")
            except ConfigError as error:
                raise ValueError(f"{error}; or name the server's virtual environment with python") from None
        return self

    @property
    def interpreter(self) -> str:
        """The Python of the server."""
        return str((self.python or named_folder("nemo-gym")) / "bin" / "python")
