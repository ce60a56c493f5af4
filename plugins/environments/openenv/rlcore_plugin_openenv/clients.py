"""Sessions of a server: as many as it allows, each of which keeps its WebSocket, and errors that name their cause."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

from openenv.core import GenericEnvClient, MCPToolClient
from rlcore_gateway.environment_server import EnvironmentServer
from websockets.exceptions import WebSocketException

from rlcore.api import InfrastructureError
from rlcore_plugin_openenv.options import OpenEnvOptions

__all__ = ["BadActionError", "OpenSession", "Sessions"]

_EVERY = 0.2
_CLOSING = 2.0  # less than cancel_seconds, so that a server which hangs does not cost its process
_CODE = re.compile(r"^Server error: (.*) \(code: (?:WSErrorCode\.)?(\w+)\)$", re.DOTALL)
_GONE = (ConnectionError, OSError, WebSocketException)


class BadActionError(ValueError):
    """An answer of the policy is not an action of this environment."""


class _OneSession:
    """A client of openenv connects again if its session was closed, and would continue in an environment that was never reset."""

    _first: Any = None

    async def _ensure_connected(self) -> None:
        await super()._ensure_connected()  # type: ignore[misc]
        self._first = self._first or self._ws  # type: ignore[attr-defined]
        if self._ws is not self._first:  # type: ignore[attr-defined]
            raise ConnectionError("the server closed the session")


class _StepClient(_OneSession, GenericEnvClient):
    pass


class _ToolClient(_OneSession, MCPToolClient):
    pass


class OpenSession:
    """One session of a server.

    ``first``: the result of its reset. ``waited``: the seconds that it waited for another session to end.
    """

    def __init__(self, client: Any, server: EnvironmentServer, seconds: float) -> None:
        self.client, self.waited = client, 0.0
        self.first: Any = None
        self._server, self._seconds = server, seconds

    async def ask(self, what: str, answer: Awaitable[Any]) -> Any:
        """Return the server's answer.

        :raises BadActionError: it does not accept the action.
        :raises InfrastructureError: it failed, is gone, or did not answer in time. It has no cause, because the gateway would report that.
        """
        try:
            return await answer
        except TimeoutError:
            await self._server.replace()
            raise InfrastructureError(f"the server did not answer {what} within {self._seconds:g} s (message_seconds)") from None
        except RuntimeError as error:
            said, code = found.groups() if (found := _CODE.match(str(error))) else (str(error), "")
            if code == "VALIDATION_ERROR" and what == "step":
                raise BadActionError("the environment has no such action") from error
            raise InfrastructureError(f"the server failed in {what}: {said}{f' ({code})' if code else ''}") from None
        except _GONE as error:
            await self._server.died()
            raise InfrastructureError(f"the server was gone in {what}: {error}") from None


class Sessions:
    """Opens sessions. If a server allows no further one, the episodes of this process wait in order."""

    def __init__(self, options: OpenEnvOptions, server: EnvironmentServer | None) -> None:
        self._options, self._server, self._queue = options, server, asyncio.Lock()

    @contextlib.asynccontextmanager
    async def open(self, reset: Mapping[str, Any]) -> AsyncIterator[OpenSession]:
        """Open a session and reset its environment."""
        began = time.monotonic()
        session = None if self._queue.locked() else await self._tried(reset)
        waited = session is None
        if session is None:
            async with self._queue:
                while (session := await self._tried(reset)) is None:
                    await asyncio.sleep(_EVERY)
        session.waited = time.monotonic() - began if waited else 0.0
        try:
            yield session
        finally:
            await _closed(session.client)

    async def _tried(self, reset: Mapping[str, Any]) -> OpenSession | None:
        """Return a new session; None if the server has no room for one."""
        session = await self._connected()
        try:
            session.first = await session.ask("reset", session.client.reset(**reset))
        except BaseException as error:
            await _closed(session.client)
            if isinstance(error, InfrastructureError) and str(error).endswith("(CAPACITY_REACHED)"):
                return None
            raise
        return session

    async def _connected(self, again: bool = True) -> OpenSession:
        assert self._server is not None  # OpenEnvOptions refuses steps and tools without one
        kind = _ToolClient if self._options.interface == "tools" else _StepClient
        address = await self._server.address()
        client = kind(base_url=address, message_timeout_s=self._options.message_seconds)
        try:
            await client.__aenter__()
        except ConnectionError as error:
            if again and self._server.own:  # it hangs since an earlier episode
                await self._server.replace()
                return await self._connected(again=False)
            raise InfrastructureError(f"the server {address} cannot be reached: {error}") from None
        return OpenSession(client, self._server, self._options.message_seconds)


async def _closed(client: Any) -> None:
    with contextlib.suppress(TimeoutError, *_GONE):
        await asyncio.wait_for(client.close(), _CLOSING)
