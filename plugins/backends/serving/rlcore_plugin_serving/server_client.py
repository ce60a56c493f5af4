"""HTTP to one server: orders that are answered at once, and answers that come as a stream. It knows no kind of server. All of it runs in
one event loop."""

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
"""What reading an answer of another shape than is known raises."""

_TRIES, _FIRST_PAUSE = 5, 0.1
_CONNECT = 10.0
"""Seconds within which a server takes a connection."""
_SHOWN = 300
"""Characters of a server's message that a sentence repeats."""


class ServerGoneError(Exception):
    """The server cannot be reached, broke off, or has been silent for too long; the text says which."""


class ServerAnswerError(Exception):
    """The server answered that it does not do it. ``status``: of HTTP."""

    def __init__(self, where: str, status: int, text: str) -> None:
        super().__init__(f"{where} answers {status}: {' '.join(text.split())[:_SHOWN]}")
        self.status = status


class ServerClient:
    """Two sets of connections, so that an order never waits behind answers. ``silence``: seconds; ``heard``: when it last sent anything
    of an answer, by time.monotonic()."""

    def __init__(self, address: str, key: str, admin_key: str, *, silence: float, connections: int) -> None:
        self.address, self.silence = address.rstrip("/"), silence
        self.heard = time.monotonic()
        limit = min(_CONNECT, silence)
        # A server may have good reason to say nothing on one answer for long: whoever reads them looks at `heard`, of all of them.
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
        """What the server answers, parsed if it is JSON. It may be sent more than once, so it is one that changes nothing the second time.
        ServerGoneError, ServerAnswerError."""
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
        """One answer that is no stream, which is sent for once. ServerGoneError, ServerAnswerError."""
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
        """The messages of an answer that comes piece by piece (server-sent events of JSON), which is sent for once. Leaving it early hangs
        up. ServerGoneError, also from the messages; ServerAnswerError."""
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
        """Hang up."""
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
                raise ServerGoneError(f"it sent what is no JSON: {text[:_SHOWN]}") from error

    def _read(self, path: str, response: httpx2.Response) -> Any:
        if response.status_code >= 400:
            raise ServerAnswerError(path, response.status_code, response.text)
        try:
            return response.json()
        except ValueError:
            return response.text

    def _timed_out(self, path: str, error: httpx2.TimeoutException) -> str:
        if isinstance(error, httpx2.ConnectTimeout):
            return "it takes no connection"
        return f"it did not answer {path} for {self.silence:g} s"


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _broken(error: httpx2.HTTPError) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
