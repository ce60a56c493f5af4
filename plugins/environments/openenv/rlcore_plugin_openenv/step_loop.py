"""The loop of reset and step: an observation becomes a message, and an answer an action."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from rlcore.api.environments import EpisodeResult, Model
from rlcore_plugin_openenv.chat import added, rewarded, said
from rlcore_plugin_openenv.clients import BadActionError, OpenSession
from rlcore_plugin_openenv.options import OpenEnvOptions

__all__ = ["StepLoop"]


class StepLoop:
    """Plays episodes on a server.

    :param build: the prompt builder, None for a field or JSON. :param parse: the action parser, None for a field or JSON.
    """

    def __init__(self, options: OpenEnvOptions, build: Callable[..., Any] | None, parse: Callable[..., Any] | None) -> None:
        self._options, self._build, self._parse = options, build, parse

    async def play(self, model: Model, messages: list[dict[str, Any]], session: OpenSession) -> EpisodeResult:
        """Play one episode. See Environment."""
        rewards: dict[str, float] = {}
        result, counts = session.first, {"steps": 0, "bad_actions": 0}
        added(messages, await self._prompt(result.observation))
        while not result.done and sum(counts.values()) < self._options.max_steps:
            answer = await model.chat(messages)
            messages.append(said(answer))
            try:
                action = await self._action(answer.get("content") or "")
                result = await session.ask("step", session.client.step(action))
            except BadActionError as error:
                counts["bad_actions"] += 1
                if self._options.on_bad_action == "end":
                    rewards[answer["id"]] = self._options.bad_action_reward
                    break
                added(messages, f"That is not a valid action: {error}")
                continue
            counts["steps"] += 1
            if result.reward is not None:  # a step without a reward is not scored
                rewards[answer["id"]] = float(result.reward)
            if not result.done:
                added(messages, await self._prompt(result.observation))
        state = await session.ask("state", session.client.state())
        return rewarded(self._options, rewards, {**counts, "done": float(result.done), "state": state})

    async def _prompt(self, observation: Mapping[str, Any]) -> str | list[dict[str, Any]]:
        if self._build is not None:
            built = self._build(observation)
            return await built if inspect.isawaitable(built) else built
        if self._options.prompt == "json":
            return json.dumps({name: value for name, value in observation.items() if name != "metadata" or value})
        if self._options.prompt not in observation:
            raise KeyError(f"the observation has no field {self._options.prompt!r} (option prompt); it has {', '.join(observation)}")
        return str(observation[self._options.prompt])

    async def _action(self, text: str) -> dict[str, Any]:
        """Return the action of an answer. Raise BadActionError if it is none."""
        if self._options.action not in ("json",) and self._parse is None:
            return {self._options.action: text.strip()}
        try:
            parsed = json.loads(text) if self._parse is None else self._parse(text)
            parsed = await parsed if inspect.isawaitable(parsed) else parsed
        except ValueError as error:
            raise BadActionError(str(error)) from error
        if not isinstance(parsed, dict):
            raise BadActionError(f"it must be an object, not {type(parsed).__name__}")
        return parsed
