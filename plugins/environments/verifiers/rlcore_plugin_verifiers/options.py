"""Options of the environment ``verifiers``. This module is imported whenever a run is configured; verifiers is not installed there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = ["VerifiersOptions"]


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class VerifiersOptions(BaseModel):
    """Options of the environment ``verifiers``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    env: str = Field(default="", description="environment of verifiers, such as best-of-n; none: that of the taskset, or a single agent")
    env_options: dict[str, Any] = Field(default={}, description='settings of the environment, as below [env] of verifiers: {"n": 4}')
    agent: dict[str, Any] = Field(
        default={}, description='settings of every agent, as below [env.agent] of verifiers: {"max_turns": 4, "harness": {"id": "null"}}'
    )
    agents: dict[str, dict[str, Any]] = Field(default={}, description="settings of an agent by its role, over those of agent")
    client: Literal["chat", "tokens"] = Field(
        default="chat",
        description="how verifiers asks the policy: by chat, or by tokens, which it renders itself and keeps in a trace to compare with",
    )
    tokenizer: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None, description="folder of the tokenizer with which client tokens renders: that of the model"
    )
    renderer: dict[str, Any] = Field(
        default={}, description='the renderer of client tokens: {"name": "qwen3", "thinking_retention": "all"}; none: by the tokenizer'
    )

    @model_validator(mode="after")
    def _complete(self) -> VerifiersOptions:
        if self.client == "tokens" and self.tokenizer is None:
            raise ValueError("client tokens needs the tokenizer of the model; type --tokenizer with its folder")
        if self.client == "chat" and (self.tokenizer or self.renderer):
            raise ValueError("tokenizer and renderer belong to client tokens; type --client tokens, or leave them out")
        if self.tokenizer is not None and not (self.tokenizer / "tokenizer_config.json").is_file():
            raise ValueError(f"tokenizer: {self.tokenizer} has no tokenizer_config.json; name the folder of the model")
        if name := next((name for name in ("taskset", "id") if name in self.env_options), None):
            raise ValueError(f"env_options: {name} is not set here; name the taskset in -d env:verifiers:NAME, and the environment in env")
        return self
