"""Options of the environment ``command``. This module is imported whenever a run is configured, so it imports no gateway."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rlcore_plugin_agents.agent_options import Folder, found_files, in_words
from rlcore_plugin_agents.command_presets import PRESETS, Preset

__all__ = ["CommandOptions"]

_Words = Annotated[tuple[str, ...], BeforeValidator(in_words), AfterValidator(found_files)]


class CommandOptions(BaseModel):
    """Options of the environment ``command``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: Literal["none", "mini-swe-agent", "claude-code", "codex", "opencode", "qwen-code"] = Field(
        default="none", description="a known agent: its command, variables and files; the other options come in addition"
    )
    command: _Words = Field(
        default=(), description="the agent and its arguments, with {prompt}, {workspace}, {base_url}, {root_url}, {key}, {model}, {home}"
    )
    env: dict[str, str] = Field(default={}, description="environment variables of the agent, with the same placeholders; it gets no others")
    home_files: dict[str, str] = Field(default={}, description="texts by path in its home, such as settings, with the same placeholders")
    stdin: str = Field(default="", description="its standard input, with the same placeholders")
    path: tuple[Folder, ...] = Field(default=(), description="folders that come first on PATH, such as node_modules/.bin")
    folder: Folder | None = Field(
        default=None, description="folder that is copied to each workspace; the column folder names one for its row"
    )
    agent_seconds: float = Field(
        default=0.0, ge=0, description="time after which the agent is killed, and its workspace graded; 0: deadline"
    )
    exit_codes: tuple[int, ...] = Field(default=(0,), description="exit codes that are not a crash of the agent")
    grader: _Words = Field(
        default=(), description="command that grades the workspace, with {workspace}, {row}, {output}; none: a reward does"
    )
    grade: Literal["exit_code", "last_line"] = Field(
        default="exit_code",
        description="exit code 0 is reward 1, and those of grader_zero_codes are 0; or the last line of standard output is the reward",
    )
    grader_zero_codes: tuple[int, ...] = Field(
        default=(1, 2, 5), description="exit codes of the grader that are reward 0; with others, except 0, it has failed"
    )
    grader_seconds: float = Field(default=120.0, gt=0, description="time of the grader")
    on_grader_timeout: Literal["environment", "zero"] = Field(
        default="environment", description="a grader that is too late has failed, or gives 0 because what the policy wrote is too slow"
    )
    files_kb: int = Field(default=64, ge=0, description="most KiB of changed files in extra files; 0: none")

    @model_validator(mode="after")
    def _complete(self) -> CommandOptions:
        if not self.agent.command:
            raise ValueError("there is no command; type --command, or --preset with the name of an agent")
        if not any("{prompt}" in text for text in (*self.agent.command, self.stdin, *self.agent.env.values(), *self.agent.files.values())):
            raise ValueError("the agent never receives its task: write {prompt} in command, stdin, env or home_files")
        return self

    @property
    def agent(self) -> Preset:
        """The agent: the preset with the other options."""
        preset = PRESETS.get(self.preset, Preset(command=()))
        return Preset(command=self.command or preset.command, env={**preset.env, **self.env}, files={**preset.files, **self.home_files})
