"""The environment ``nemo_gym``: seed_session, a loop of Responses with the tools of the server, verify."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from rlcore_gateway.environment_server import EnvironmentServer

from rlcore.api import DataError, InfrastructureError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_nemo_gym.options import NemoGymOptions

__all__ = ["NemoGym"]

_OWN = ("messages", "reset")
_SERVE = Path(__file__).with_name("serve.py")


class NemoGym(Environment):
    """Plays the rows of NeMo Gym, as its simple agent does."""

    def __init__(self, options: NemoGymOptions) -> None:
        def command(port: int) -> Sequence[str]:
            return (options.interpreter, str(_SERVE), options.server, json.dumps(options.config), str(port))

        path = str(options.folder or Path.cwd())
        env = {**os.environ, "PYTHONPATH": path, "WANDB_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        address, seconds = options.address.rstrip("/"), options.start_seconds
        self._options = options
        self._server = EnvironmentServer(address, command, folder=options.folder, env=env, start_seconds=seconds)

    @classmethod
    def rows(cls, name: str) -> Iterable[Mapping[str, Any]]:
        """See Environment. ``name`` is a JSONL file of NeMo Gym."""
        try:
            lines = Path(name).expanduser().read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise DataError(f"nemo_gym: {name}: {error.strerror}; name a JSONL file, as in env:nemo_gym:example.jsonl") from None
        for number, line in enumerate(lines, start=1):
            row = json.loads(line)
            if "responses_create_params" not in row:
                raise DataError(f"nemo_gym: {name}, line {number}: it has no responses_create_params, so it is not a row of NeMo Gym")
            yield {**row, "messages": _messages(row["responses_create_params"]["input"])}

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment."""
        if "responses_create_params" not in row:
            raise InfrastructureError("the row has no column responses_create_params; read rows of NeMo Gym with -d env:nemo_gym:FILE")
        given = {name: value for name, value in row.items() if name not in _OWN}
        address = await self._server.address()
        async with httpx.AsyncClient(base_url=address, timeout=self._options.message_seconds, trust_env=False) as client:  # keeps cookies
            _checked("seed_session", await self._ask(client, "seed_session", given))
            response, counts = await self._responses(model, client, given["responses_create_params"])
            verified = _checked("verify", await self._ask(client, "verify", {**given, "response": response}))
        return _result(verified, counts)

    async def _responses(
        self, model: Model, client: httpx.AsyncClient, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the last response, with the items of all of them."""
        asked = {name: value for name, value in params.items() if value is not None and name not in ("model", "input")}
        start = params["input"]
        start = [{"role": "user", "content": start}] if isinstance(start, str) else list(start)
        items: list[dict[str, Any]] = []
        counts = {"steps": 0.0, "tool_calls": 0.0}
        while True:
            said = await model.client.responses.create(**asked, model=model.name, input=[*start, *items])
            response = said.model_dump(mode="json", exclude_none=True)
            counts["steps"] += 1
            items += response["output"]
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            if not calls or response.get("incomplete_details"):
                break
            for call in calls:
                counts["tool_calls"] += 1
                output = await self._called(client, call)
                items.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})
            if counts["steps"] >= self._options.max_steps:
                break
        return {**said.model_dump(mode="json"), "output": items}, counts

    async def _called(self, client: httpx.AsyncClient, call: Mapping[str, Any]) -> str:
        """Return what a tool answers, also if it refuses the call: that is the policy's fault."""
        try:
            arguments = json.loads(call["arguments"])
        except ValueError as error:
            return json.dumps({"error": f"Invalid tool call arguments: {error!r}"})
        return (await self._ask(client, call["name"], arguments)).text

    async def _ask(self, client: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
        try:
            return await client.post(f"/{path}", json=body)
        except httpx.TimeoutException:
            await self._server.replace()
            seconds = self._options.message_seconds
            raise InfrastructureError(f"the server did not answer {path} within {seconds:g} s (message_seconds)") from None
        except httpx.TransportError as error:
            await self._server.died()
            raise InfrastructureError(f"the server was gone in {path}: {error or type(error).__name__}") from None


def _checked(what: str, answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise InfrastructureError(f"{what} answered {answer.status_code}: {answer.text[:300]}")
    found: dict[str, Any] = answer.json()
    return found


def _result(verified: Mapping[str, Any], counts: Mapping[str, float]) -> EpisodeResult:
    """Return the reward of verify. A response with ``mask_sample`` must not train, whatever its reward."""
    numbers = {name: float(value) for name, value in verified.items() if isinstance(value, int | float) and name != "reward"}
    if verified.get("mask_sample"):
        return EpisodeResult(outcome="timeout", reason="verify masks this sample (mask_sample)", extra={**numbers, **counts})
    reward = verified.get("reward")
    return EpisodeResult(reward=None if reward is None else float(reward), extra={**numbers, **counts})


def _messages(given: Any) -> list[dict[str, Any]]:
    """Return the messages of an input, whose role developer is system for chat templates."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [
        {"role": "system" if item["role"] == "developer" else item["role"], "content": item["content"]}
        for item in given
        if "role" in item and isinstance(item.get("content"), str)
    ]
