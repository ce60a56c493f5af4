"""Options that users set. This module is imported whenever a run is configured, so it imports no gateway."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from rlcore.api.sandbox import SandboxOptions
from rlcore_plugin_agents.player_options import PlayerOptions

__all__ = ["AgentOptions", "EnvironmentRewardOptions", "Folder", "ProgramOptions", "SessionOptions", "found_files", "in_words"]


def in_words(value: Any) -> Any:
    """Split one text into words, also if a flag gave it. A program whose path has spaces is one word if it exists."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        return value
    return (value,) if _is_file(value) else shlex.split(value)


def found_files(words: tuple[str, ...]) -> tuple[str, ...]:
    """Name files by absolute paths, so that the settings mean the same from any folder."""
    return tuple(str(Path(word).absolute()) if _is_file(word) and not word.startswith("-") else word for word in words)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # such as: a script of the shell is too long for a name
        return False


class SessionOptions(SandboxOptions):
    """The sandbox in which an environment's processes play, and the limits of each process with its children."""

    level: Literal["namespaces"] = Field(default="namespaces", description="isolation of the processes; no other level has sessions")
    memory_mb: int = Field(default=2048, ge=64, description="memory of a process and its children, MiB")
    disk_mb: int = Field(default=256, ge=1, description="files of a process and its children, MiB")
    processes: int = Field(default=256, ge=1, description="most processes and threads that one process may have below it")


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


Folder = Annotated[Path, AfterValidator(_absolute)]


class AgentOptions(BaseModel):
    """Options of the conversation ``agent``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    deadline: float = Field(default=600.0, gt=0, description="seconds that an episode may take, from when a process begins it")
    max_calls: int = Field(default=64, ge=1, description="most calls of the policy in an episode; later ones are refused")
    max_call_tokens: int = Field(default=0, ge=0, description="longest answer of one call; 0: as long as sampling.max_new_tokens has room")
    workers: int = Field(default=16, ge=1, description="most processes that play at the same time, for each producer")
    episodes_per_process: int = Field(default=0, ge=0, description="episodes that one process plays at the same time; 0: as it declares")
    history: Literal["as_sampled", "template"] = Field(
        default="as_sampled",
        description="earlier answers as they were sampled, or as the chat template renders them (often without thinking)",
    )
    tool_parser: str = Field(default="auto", description="how tool calls are written: hermes, llama, mistral, json; auto: by chat template")
    on_timeout: Literal["mask", "grade"] = Field(default="mask", description="an episode that is too late does not train, or is graded")
    on_crash: Literal["mask", "zero"] = Field(default="mask", description="an episode whose agent crashed does not train, or gets 0")
    on_budget: Literal["auto", "refuse", "answer"] = Field(
        default="auto",
        description="a call beyond the budget is refused, or gets a fixed answer that never trains; auto: answer for environment command",
    )
    error_budget: float = Field(default=0.1, ge=0, le=1, description="share of episodes that may fail by the environment's fault")
    cancel_seconds: float = Field(default=5.0, gt=0, description="time to end a cancelled episode, before its process is killed")
    sandbox: SessionOptions | None = Field(
        default=None, description="sandbox of the environment's processes, which then reach the policy and nothing else; none: no isolation"
    )
    gateways: int = Field(default=1, ge=1, description="gateway processes of each producer, which share its episodes and workers")
    players: dict[str, PlayerOptions] = Field(default={}, description="the players of an episode, by name; none: only the policy")
    gateway_restarts: int = Field(default=3, ge=0, description="times in a row that a gateway process is started anew")
    gateway_silence: float = Field(default=60.0, gt=1, description="seconds without a sign of life after which it counts as hanging")


class ProgramOptions(BaseModel):
    """Options of the environment ``program``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[tuple[str, ...], BeforeValidator(in_words), AfterValidator(found_files)] = Field(
        min_length=1, description='the program and its arguments, a list or one text: "python game.py"'
    )
    env: dict[str, str] = Field(default={}, description="further environment variables")
    cwd: Folder | None = Field(default=None, description="folder in which it runs; none: that of the run")
    python: Folder | None = Field(default=None, description="folder of a virtual environment, whose programs come first on PATH")


class EnvironmentRewardOptions(BaseModel):
    """Options of the reward ``environment``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    solved: float = Field(default=1.0, description="reward from which an episode counts as solved, if its extra has no accuracy")
    exhausted: float | None = Field(
        default=0.0, description="value of an episode whose budget was used up before the environment gave a reward; none: it is masked"
    )
