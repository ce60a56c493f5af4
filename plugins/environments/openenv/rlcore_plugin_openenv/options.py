"""Options of the environment ``openenv``. This module is imported whenever a run is configured, so it does not import openenv."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

__all__ = ["OpenEnvOptions"]

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SERVERS = ("address", "app", "command")
_NEEDED: Mapping[str, str] = {"session": "factory", "agent": "agent"}


def _in_words(value: Any) -> Any:
    """Split one text into words, also if a flag gave it."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return shlex.split(value) if isinstance(value, str) else value


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


_Folder = Annotated[Path, AfterValidator(_absolute)]


def _reference(value: str) -> str:
    if value and not _REFERENCE.fullmatch(value):
        raise ValueError(f"{value!r} is not a name of the form module:name, such as guessing.server:app")
    return value


def _form(value: str) -> str:
    """Accept ``json``, the name of a field, or ``module:function``."""
    return _reference(value) if ":" in value or not value.isidentifier() else value


def _address(value: str) -> str:
    if value and not re.match(r"(https?|wss?)://[^/\s]", value):
        raise ValueError(f"{value!r} is not an address; write it with its protocol, such as http://127.0.0.1:8000")
    return value.rstrip("/")


class OpenEnvOptions(BaseModel):
    """Options of the environment ``openenv``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    interface: Literal["steps", "tools", "session", "agent"] = Field(
        default="steps",
        description="reset and step of a server; its tools; a ResourceSession; an agent of its own behind the capture server",
    )
    address: Annotated[str, AfterValidator(_address)] = Field(default="", description="the address of a server that runs already")
    app: Annotated[str, AfterValidator(_reference)] = Field(
        default="", description="module:name of an app of FastAPI, which each process serves on a free port"
    )
    command: Annotated[tuple[str, ...], BeforeValidator(_in_words)] = Field(
        default=(), description="the command of a server, which each process starts, with {port}"
    )
    folder: _Folder | None = Field(default=None, description="folder of your modules, in which the server starts; none: that of the run")
    python: _Folder | None = Field(default=None, description="virtual environment of the server, which needs openenv; none: openenv's")
    env: dict[str, str] = Field(default={}, description="further environment variables of the server")
    start_seconds: float = Field(default=60.0, gt=0, description="time in which the server must answer after its start")
    message_seconds: float = Field(default=60.0, gt=0, description="longest time between a message to the server and its answer")
    messages: Literal["row", "environment"] = Field(
        default="row", description="an episode begins with the messages of the row and then the first observation, or with that alone"
    )
    prompt: Annotated[str, AfterValidator(_form)] = Field(
        default="json", description="what the policy reads: the observation as JSON, the name of its field, or module:function(observation)"
    )
    action: Annotated[str, AfterValidator(_form)] = Field(
        default="json", description="what an answer means: an action as JSON, the text of one field, or module:function(text)"
    )
    on_bad_action: Literal["tell", "end"] = Field(
        default="tell", description="an answer that is not an action: the policy is told and may try again, or the episode ends"
    )
    bad_action_reward: float = Field(default=0.0, description="reward of an answer that is not an action, if it ends the episode")
    reward: Literal["sum", "last"] = Field(default="sum", description="the reward of an episode: the sum of its steps, or that of the last")
    max_steps: int = Field(
        default=64, ge=1, description="most answers of the policy in an episode, which then ends with its rewards so far"
    )
    factory: Annotated[str, AfterValidator(_reference)] = Field(
        default="", description="module:name of a ResourceSessionFactory, or of a function that returns one; for interface session"
    )
    agent: Annotated[str, AfterValidator(_reference)] = Field(
        default="", description="module:function(base_url, api_key, model, row, server) that returns a reward; for interface agent"
    )

    @model_validator(mode="after")
    def _complete(self) -> OpenEnvOptions:
        servers = [name for name in _SERVERS if getattr(self, name)]
        if len(servers) > 1:
            raise ValueError(f"{' and '.join(servers)} name two servers; an environment has one")
        needed = _NEEDED.get(self.interface)
        if needed and not getattr(self, needed):
            raise ValueError(f"interface {self.interface} needs the option {needed}, module:name")
        if not needed and not servers:
            raise ValueError(f"interface {self.interface} needs a server: address, app or command")
        if self.interface == "session" and servers:
            raise ValueError(f"interface session has no server, but {servers[0]} names one; factory makes its sessions")
        if self.command and not any("{port}" in word for word in self.command):
            raise ValueError("command never receives its port: write {port} where the server reads it")
        return self
