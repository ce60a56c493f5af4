"""The loop of tools: those of a server, or those of a ``ResourceSession``."""

from __future__ import annotations

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from openenv.core.env_server import CallToolAction

from rlcore.api import InfrastructureError
from rlcore.api.environments import EpisodeResult, Model
from rlcore_plugin_openenv.chat import chat_tool, rewarded, said, text_of
from rlcore_plugin_openenv.clients import OpenSession
from rlcore_plugin_openenv.options import OpenEnvOptions

__all__ = ["ResourceTools", "ServerTools", "play_with_tools"]


class _Tools(ABC):
    """The tools of an episode. ``extra``: what is known of it at its end."""

    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}

    @abstractmethod
    async def chat_tools(self) -> list[dict[str, Any]]:
        """Return their schemas."""

    @abstractmethod
    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, float | None, bool]:
        """Return what a tool returned, the reward, and whether the episode is over."""

    async def verified(self, messages: list[dict[str, Any]]) -> float | None:
        """Return the reward of the whole episode, None if only its calls have one."""
        return None


class ServerTools(_Tools):
    """Tools of a server with FastMCP."""

    def __init__(self, session: OpenSession) -> None:
        super().__init__()
        self._session = session

    async def chat_tools(self) -> list[dict[str, Any]]:
        return [chat_tool(tool) for tool in await self._session.ask("list_tools", self._session.client.list_tools())]

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, float | None, bool]:
        action = CallToolAction(tool_name=name, arguments=arguments)
        result = await self._session.ask(f"tool {name}", self._session.client.step(action))
        seen = result.observation
        error = getattr(seen, "error", None)
        text = f"Error: {error.message}" if error is not None else text_of(getattr(seen, "result", None))
        return text, None if result.reward is None else float(result.reward), bool(result.done)


class ResourceTools(_Tools):
    """Tools of a ResourceSession, whose methods block."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self._session = session
        self._last: float | None = None

    async def chat_tools(self) -> list[dict[str, Any]]:
        return [chat_tool(tool) for tool in await asyncio.to_thread(self._session.list_tools)]

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, float | None, bool]:
        try:
            result = await asyncio.to_thread(self._session.call_tool, name, arguments)
        except KeyError as error:  # no such tool
            return f"Error: {error.args[0] if error.args else name}", None, False
        except (Exception, SystemExit) as error:  # whatever the code of an environment raises
            raise InfrastructureError(f"tool {name} failed: {type(error).__name__}: {error}") from None
        reward = result.metadata.get("reward")
        if reward is None and isinstance(result.data, dict):
            reward = result.data.get("reward")
        self._last = self._last if reward is None else float(reward)
        return f"Error: {result.error}" if result.error else text_of(result.data), None, bool(result.done)

    async def verified(self, messages: list[dict[str, Any]]) -> float | None:
        try:
            found = await asyncio.to_thread(self._session.verify, messages)
        except (Exception, SystemExit) as error:
            raise InfrastructureError(f"verify failed: {type(error).__name__}: {error}") from None
        self.extra = {"metrics": dict(found.metrics)}
        own = None if found.env_reward is None else float(found.env_reward)
        if own is not None and self._last is not None and not math.isclose(own, self._last, rel_tol=1e-9, abs_tol=1e-6):
            raise InfrastructureError(f"verify returned the reward {own}, and the last tool {self._last}; openenv wants the same")
        return self._last if own is None else own


async def play_with_tools(options: OpenEnvOptions, model: Model, messages: list[dict[str, Any]], tools: _Tools) -> EpisodeResult:
    """Let the policy call tools until it answers without one, or until one ends the episode."""
    offered, rewards, over, answers, calls = await tools.chat_tools(), dict[str, float](), False, 0, 0
    while not over and answers < options.max_steps:
        answer = await model.chat(messages, tools=offered)
        answers += 1
        messages.append(said(answer))
        if not answer.get("tool_calls"):
            break
        for call in answer["tool_calls"]:
            calls += 1
            text, reward, over = await _called(tools, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            if reward is not None:
                rewards[answer["id"]] = rewards.get(answer["id"], 0.0) + reward
            if over:
                break
    whole = await tools.verified(messages)
    extra = {"steps": answers, "tool_calls": calls, "done": float(over), **tools.extra}
    return rewarded(options, rewards, extra) if whole is None else EpisodeResult(reward=whole, extra=extra)


async def _called(tools: _Tools, function: Mapping[str, Any]) -> tuple[str, float | None, bool]:
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        return f"Error: the arguments are not JSON: {error}", None, False
    if not isinstance(arguments, dict):
        return "Error: the arguments must be an object", None, False
    return await tools.call(function["name"], arguments)
