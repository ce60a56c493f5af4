"""The table ``players`` of the options: who plays in an episode. This module is imported whenever a run is configured."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer

__all__ = ["PlayerOptions", "player_problems", "without_policy"]

_NAME, _HUB = re.compile(r"[A-Za-z0-9_-]{1,40}"), re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ENGINE = ("backend", "backend_options", "dtype", "device", "temperature", "top_p")
"""Options that only a frozen player has."""


def _model_folder(word: str) -> str:
    """Return the folder of a model, of a checkpoint, or of the newest checkpoint of a run; any other word as it is."""
    folder = Path(word).expanduser().absolute()
    if word == "policy" or not folder.is_dir():
        return word
    if (folder / "config.json").is_file():
        return str(folder)
    from rlcore.api.runs import checkpoint_steps, past_runs

    runs = past_runs(folder)
    steps = checkpoint_steps(runs[0].root / "checkpoints") if runs else []
    checkpoint = runs[0].root / "checkpoints" / f"step-{steps[-1]}" if steps else folder
    return str(checkpoint / "model" if (checkpoint / "checkpoint.json").is_file() else folder)


class PlayerOptions(BaseModel):
    """One player: the policy, a frozen model, or a model at another address."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base_url: str = Field(default="", description="address of a server with the interface of OpenAI, which ends in /v1; none: no endpoint")
    model: str = Field(
        default="policy",
        min_length=1,
        description="policy; a model that stays as it is: its folder, a checkpoint, a run, a hub name; or its name at base_url",
    )
    key_variable: str = Field(default="", description="environment variable with the API key of base_url; none: no key")
    backend: str = Field(default="transformers", description="inference backend of a frozen model")
    backend_options: dict[str, Any] = Field(default={}, description="options of that backend")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(default="float32", description="number format of a frozen model")
    device: str = Field(default="auto", description="device of a frozen model: auto, cpu, cuda:1 …")
    temperature: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="temperature of a frozen model; none: that of the run"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None, description="of a frozen model; none: that of the run")

    @field_validator("model")
    @classmethod
    def _model_here(cls, word: str, info: ValidationInfo) -> str:
        return word if info.data.get("base_url") else _model_folder(word)

    @model_serializer(mode="wrap")
    def _own_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what only a frozen player has, so that a table that was written back says what the user gave."""
        given: dict[str, Any] = handler(self)
        unset = set(_ENGINE) - self.model_fields_set if self.kind != "frozen" else set()
        return {name: value for name, value in given.items() if name not in unset}

    @property
    def kind(self) -> Literal["policy", "frozen", "endpoint"]:
        """Whether it is the policy, a frozen model or an endpoint."""
        return "endpoint" if self.base_url else "policy" if self.model == "policy" else "frozen"


def without_policy(players: Mapping[str, Any]) -> bool:
    """Return whether there are players, and none of them is the policy."""
    kinds = [PlayerOptions.model_validate(player).kind for player in players.values()]
    return bool(kinds) and "policy" not in kinds


def player_problems(players: Mapping[str, Mapping[str, Any]], trains: bool) -> Iterator[str]:
    """Yield a sentence for each mistake in the table, but for those of a frozen player's engine.

    :param trains: False for an evaluation, which needs no policy.
    """
    path, seen = "sampling.options.players", dict[str, str]()
    made = {name: PlayerOptions.model_validate(table) for name, table in players.items()}
    for name, player in made.items():
        if not _NAME.fullmatch(name):
            yield f'{path}: the name "{name}" may have letters, digits, _ and -, and at most 40 of them'
        if (other := seen.setdefault(name.lower(), name)) != name:
            yield f"{path}: the names {other} and {name} differ only in upper and lower case; choose another name"
        yield from (f"{path}.{name}{problem}" for problem in _problems(player))
    if trains and without_policy(players):
        yield f'{path}: no player is the policy, so nothing would train; write model = "policy" in one of them'


def _problems(player: PlayerOptions) -> Iterator[str]:
    useless = [name for name in _ENGINE if name in player.model_fields_set]
    if player.kind != "frozen" and useless:
        whose = "its server decides that" if player.base_url else "the policy is served and sampled as the run says"
        yield f".{useless[0]} is only for a frozen model; {whose}; leave it out"
    if player.key_variable and not player.base_url:
        yield f'.key_variable = "{player.key_variable}" belongs to an endpoint; write base_url too, or leave it out'
    if player.kind == "frozen" and not (Path(player.model) / "config.json").is_file() and not _is_hub_name(player.model):
        folder = Path(player.model).expanduser().absolute()
        what = (
            "has neither a model (config.json) nor a checkpoint"
            if folder.is_dir()
            else "does not exist (paths start where you typed rlcore)"
        )
        yield f'.model: the folder {folder} {what}; name the folder of a model, a checkpoint or a run, or write "policy"'
    if not player.base_url:
        return
    if player.model == "policy":
        yield ".base_url is the address of another model, and model is the policy; write the name of the model there, or leave base_url out"
    place = urlsplit(player.base_url)
    if place.scheme not in ("http", "https") or not place.hostname or not place.path.rstrip("/").endswith("/v1"):
        yield f'.base_url = "{player.base_url}" must begin with http:// or https:// and end in /v1, such as http://127.0.0.1:8000/v1'
    if player.key_variable and not os.environ.get(player.key_variable):
        yield f".key_variable: the environment variable {player.key_variable} is not set; type export {player.key_variable}=KEY"


def _is_hub_name(word: str) -> bool:
    return bool(_HUB.fullmatch(word)) and not Path(word).exists()
