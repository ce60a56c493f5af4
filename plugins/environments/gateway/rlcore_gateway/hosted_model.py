"""The policy as an environment in Python sees it. This module needs no package: it also runs in environments of users."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit

__all__ = ["HostedModel", "ModelError"]


class ModelError(RuntimeError):
    """The gateway refused a call. ``status`` is that of HTTP, ``code`` a word such as "context_length_exceeded"."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Players(dict[str, "HostedModel"]):
    """The players of an episode."""

    def __missing__(self, name: str) -> HostedModel:
        those = f"the players of the run are {', '.join(self)}" if self else "the run has no [sampling.options.players]"
        raise KeyError(f"there is no player {name!r}; {those}")


class HostedModel:
    """See ``rlcore.api.environments.Model``. The argument ``players``: the fields of each player in the line to the program, by name."""

    def __init__(self, name: str, base_url: str, api_key: str, players: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.name, self.base_url, self.api_key = name, base_url, api_key
        self.players = _Players()
        for player, said in (players or {}).items():
            self.players[player] = HostedModel(said["model"], said["base_url"], said["key"])

    @cached_property
    def client(self) -> Any:
        """An ``openai.AsyncOpenAI`` for this episode. Raises ModuleNotFoundError if the package openai is not installed."""
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("model.client needs the package openai; type: pip install openai, or use model.chat") from error
        http = DefaultAsyncHttpxClient(verify=_certificates())
        return AsyncOpenAI(base_url=self.base_url, api_key=self.api_key, timeout=None, http_client=http)

    async def chat(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
        """Return the assistant's message, with the ``id`` of the call. Raises ModelError if the gateway refuses."""
        asked = {"model": self.name, "messages": list(messages), **settings}
        status, body = await _post(f"{self.base_url}/chat/completions", {"Authorization": f"Bearer {self.api_key}"}, asked)
        if status != 200:
            error = body.get("error", {})
            raise ModelError(str(error.get("message", body)), status, str(error.get("code") or ""))
        return {**body["choices"][0]["message"], "id": body["id"]}


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates of this machine. Clients of a process share them, because reading them takes 20 ms."""
    return ssl.create_default_context()


async def _post(url: str, headers: Mapping[str, str], value: Any) -> tuple[int, Any]:
    """Return status and JSON of the answer. Each call has its own connection; if it is cancelled, the server sees that it is closed."""
    place, body = urlsplit(url), json.dumps(value).encode()
    fields = {"Host": place.netloc, "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
    try:
        writer.write(f"POST {place.path} HTTP/1.0\r\n{head}\r\n".encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    top, _, text = answer.partition(b"\r\n\r\n")
    if not text:
        raise ConnectionError(f"the gateway at {place.netloc} closed the connection without an answer")
    return int(top.split()[1]), json.loads(text)
