"""HTTP to one server: commands that are answered at once, and answers that arrive as a stream. It does not depend on the kind of server.
All of it runs in one event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

__all__ = ["MALFORMED_RESPONSE", "ServerAnswerError", "ServerClient", "ServerGoneError"]

MALFORMED_RESPONSE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The errors raised when an answer has an unexpected shape."""

_TRIES, _FIRST_PAUSE = 5, 0.1
_CONNECT = 10.0
"""Seconds within which a server must accept a connection."""
_SHOWN = 300
"""Characters of a server's message that an error repeats."""


class ServerGoneError(Exception):
    """The server cannot be reached, broke off, or has been silent for too long; the text says which."""


class ServerAnswerError(Exception):
    """The server answered that it refuses the request. ``status``: the HTTP status."""

    def __init__(self, where: str, status: int, text: str) -> None:
        super().__init__(f"{where} answers {status}: {' '.join(text.split())[:_SHOWN]}")
        self.status = status


class ServerClient:
    """Two sets of connections, so that a command never waits behind answers.

    ``silence``: seconds. ``heard``: the time of the last data of any answer, by time.monotonic().
    """

    def __init__(self, address: str, key: str, admin_key: str, *, silence: float, connections: int) -> None:
        self.address, self.silence = address.rstrip("/"), silence
        self.heard = time.monotonic()
        limit = min(_CONNECT, silence)
        # A server may have a good reason to be silent for long on one answer. Callers therefore check `heard`, which covers all answers.
        self._answers = httpx2.AsyncClient(
            base_url=self.address,
            headers=_bearer(key),
            timeout=httpx2.Timeout(None, connect=limit),
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,
        )
        self._orders, self._admin = (
            httpx2.AsyncClient(base_url=self.address, headers=_bearer(one), timeout=httpx2.Timeout(silence, connect=limit), trust_env=False)
            for one in (key, admin_key or key)
        )

    async def order(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None, tries: int = _TRIES, admin: bool = False
    ) -> Any:
        """Send a command and return the answer, parsed if it is JSON.

        The command may be sent more than once, so a repetition must change nothing. Raises ServerGoneError or ServerAnswerError.
        """
        began, pause = time.monotonic(), _FIRST_PAUSE
        for attempt in range(tries):
            try:
                response = await (self._admin if admin else self._orders).request(method, path, json=body, params=params)
                return self._read(path, response)
            except httpx2.TimeoutException as error:
                raise ServerGoneError(self._timed_out(path, error)) from error
            except httpx2.HTTPError as error:
                if attempt + 1 == tries or time.monotonic() + pause - began > self.silence:
                    raise ServerGoneError(_broken(error)) from error
                await asyncio.sleep(pause)
                pause *= 2
        raise AssertionError("an order is sent at least once")

    async def ask(self, path: str, body: Any) -> Any:
        """Send a request once and return its answer, which is not a stream. Raises ServerGoneError or ServerAnswerError."""
        try:
            async with asyncio.timeout(self.silence):
                response = await self._answers.post(path, json=body)
                self.heard = time.monotonic()
                return self._read(path, response)
        except TimeoutError as error:
            raise ServerGoneError(f"it did not answer {path} for {self.silence:g} s") from error
        except httpx2.HTTPError as error:
            raise ServerGoneError(_broken(error)) from error

    @asynccontextmanager
    async def stream(self, path: str, body: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """Send a request once and yield the messages of its answer, a stream of server-sent events with JSON.

        Leaving early closes the connection. Raises ServerGoneError, also while messages are read, or ServerAnswerError.
        """
        try:
            async with self._answers.stream("POST", path, json=body) as response:
                self.heard = time.monotonic()
                if response.status_code >= 400:
                    text = (await response.aread()).decode(errors="replace")
                    raise ServerAnswerError(path, response.status_code, text)
                yield self._messages(response)
        except httpx2.HTTPError as error:
            raise ServerGoneError(_broken(error)) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._answers.aclose()
        await self._orders.aclose()
        await self._admin.aclose()

    async def _messages(self, response: httpx2.Response) -> AsyncIterator[Any]:
        async for line in response.aiter_lines():
            self.heard = time.monotonic()
            if not line.startswith("data:"):
                continue
            text = line.removeprefix("data:").strip()
            if text == "[DONE]":
                return
            try:
                yield json.loads(text)
            except ValueError as error:
                raise ServerGoneError(f"it sent text that is not JSON: {text[:_SHOWN]}") from error

    def _read(self, path: str, response: httpx2.Response) -> Any:
        if response.status_code >= 400:
            raise ServerAnswerError(path, response.status_code, response.text)
        try:
            return response.json()
        except ValueError:
            return response.text

    def _timed_out(self, path: str, error: httpx2.TimeoutException) -> str:
        if isinstance(error, httpx2.ConnectTimeout):
            return "it does not accept connections"
        return f"it did not answer {path} for {self.silence:g} s"


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _broken(error: httpx2.HTTPError) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
