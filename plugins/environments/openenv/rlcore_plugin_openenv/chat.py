"""Messages and rewards of an episode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlcore.api.environments import EpisodeResult
from rlcore_plugin_openenv.options import OpenEnvOptions

__all__ = ["added", "chat_tool", "rewarded", "said", "text_of"]


def said(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy's message as a part of the history."""
    return {name: answer[name] for name in ("role", "content", "tool_calls") if answer.get(name) is not None}


def added(messages: list[dict[str, Any]], more: str | list[dict[str, Any]]) -> None:
    """Add messages, or a text of the user. Chat templates often refuse two messages of the user in a row, so such texts are joined."""
    if not isinstance(more, str):
        messages += more
    elif messages and messages[-1]["role"] == "user":
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{more}"}
    else:
        messages.append({"role": "user", "content": more})


def chat_tool(tool: Any) -> dict[str, Any]:
    """Return a tool of openenv as one of a chat."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema or {"type": "object", "properties": {}}}
    return {"type": "function", "function": function}


def text_of(value: Any) -> str:
    """Return the text of what a tool returned."""
    data = value.get("data", value) if isinstance(value, Mapping) else getattr(value, "data", value)
    return data if isinstance(data, str) else json.dumps(data, default=str)


def rewarded(options: OpenEnvOptions, rewards: Mapping[str, float], extra: Mapping[str, Any]) -> EpisodeResult:
    """Return the result of an episode with the rewards of its calls. Without any reward it is not scored, which is not 0."""
    if not rewards:
        return EpisodeResult(extra=extra)
    if options.reward == "last":
        return EpisodeResult(reward=list(rewards.values())[-1], extra=extra)
    return EpisodeResult(reward=sum(rewards.values()), turn_rewards=rewards, extra=extra)
