"""Streams of requests to servers and of their answers. All of it runs in one event loop; received parts go into a queue."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from rlcore_plugin_serving.partial_completions import NewTokens
from rlcore_plugin_serving.server_client import MALFORMED_RESPONSE, ServerAnswerError, ServerGoneError
from rlcore_plugin_serving.server_connection import ServerConnection
from rlcore_plugin_serving.serving_engine import EngineRequest

__all__ = ["CompletionStreams"]

_AGAIN = 0.2
"""Seconds after which a dropped request that has not ended is dropped again: the first command may have arrived before the request."""
_BUSY = 1.0
"""Seconds after which a server that reported that it is busy is asked again."""
_ROLLOUTS = 1 << 16
_LOOK = 0.5
"""Seconds between two checks of how long servers have been silent; at most a tenth of the bound."""


@dataclass
class _CompletionStream:
    """One request in progress.

    ``ident``: its name at the server, a different one each time it is sent; "" while it is at no server.
    """

    ask: EngineRequest
    task: asyncio.Task[None] = field(init=False)
    server: ServerConnection | None = None
    ident: str = ""
    dropped: bool = False
    known: int = 0
    """Tokens of the answer that have been passed on since it was sent."""


class CompletionStreams:
    """The requests at the servers. A request is at one server at a time: the one of its rollout, which has the keys and values of its
    context, or else the healthy one with the fewest requests.

    If that server breaks off, or answers with weights that it was not given, the tokens without a confirmed version are withdrawn. Another
    server then receives the same request, whose seed draws the same tokens again. ``put``: called with all received parts. ``over``: called
    once no server is left.
    """

    def __init__(
        self, servers: Sequence[ServerConnection], silence: float, put: Callable[[NewTokens], None], over: Callable[[], None]
    ) -> None:
        self._servers, self._silence, self._put, self._over = servers, silence, put, over
        self._streams: dict[str, _CompletionStream] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._run, self._asked = uuid4().hex[:8], 0
        self._watch: asyncio.Task[None] | None = None
        self._places: OrderedDict[tuple[int, ...], ServerConnection] = OrderedDict()
        """The servers of the last rollouts."""
        self._given: Counter[ServerConnection] = Counter()
        """How often a server was chosen for a rollout."""

    @property
    def healthy(self) -> list[ServerConnection]:
        """The servers that accept requests."""
        return [server for server in self._servers if server.healthy]

    def start(self, asks: Iterable[EngineRequest]) -> None:
        """Send these requests."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_silence())
        for ask in asks:
            stream = self._streams[ask.name] = _CompletionStream(ask)
            stream.task = asyncio.create_task(self._live(stream))

    async def drop(self, names: Iterable[str]) -> None:
        """End these requests, and wait until they have ended: with their tokens, confirmed by the server, or without the unconfirmed
        ones."""
        streams = [self._streams[name] for name in names if name in self._streams]
        for stream in [stream for stream in streams if not stream.ident]:  # at no server
            streams.remove(stream)
            del self._streams[stream.ask.name]
            stream.task.cancel()
            self._put(NewTokens(stream.ask.name, finish="abort"))
        for stream in streams:
            stream.dropped = True
        tasks, since = {stream.task for stream in streams}, time.monotonic()
        while tasks:
            await self._order_drop([stream for stream in streams if stream.ident])
            ended, tasks = await asyncio.wait(tasks, timeout=_AGAIN)
            if ended:
                since = time.monotonic()
            elif time.monotonic() - since > self._silence:  # it accepts commands and does not carry them out
                for server in {stream.server for stream in streams if stream.task in tasks and stream.server is not None}:
                    self.lose(server, f"it did not drop an answer for {self._silence:g} s")

    def hold(self) -> None:
        """Send no further requests until ``resume``."""
        self._open.clear()

    def resume(self) -> None:
        """Send requests again; see ``hold``. The servers have no keys and values of earlier requests, so these bind a rollout no longer."""
        self._places.clear()
        for server in self.healthy:
            server.line.heard = time.monotonic()
        self._open.set()

    def new_ident(self) -> str:
        """Return a name for a request at a server. No name is a prefix of another, because SGLang drops all requests with the given
        prefix."""
        self._asked += 1
        return f"rlcore-{self._run}-{self._asked:010d}"

    def lose(self, server: ServerConnection, why: str) -> None:
        """Take a server out of use; other servers receive its requests. Its open answers are closed."""
        server.lose(why)
        for stream in self._streams.values():
            if stream.server is server:
                stream.task.cancel()
        if not self.healthy:
            self._over()

    async def end(self) -> None:
        """Close all answers."""
        tasks = [stream.task for stream in self._streams.values()] + ([self._watch] if self._watch else [])
        self._streams.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one request ---------------------------------------------------------------------------------------------------

    async def _live(self, stream: _CompletionStream) -> None:
        """Run one request until it has ended, at one server or several."""
        name = stream.ask.name
        while self._streams.get(name) is stream:
            finish = await self._once(stream)
            if finish is None and not stream.dropped:
                self._put(NewTokens(name, withdrawn=True))
                continue
            self._streams.pop(name, None)
            self._put(finish or NewTokens(name, finish="abort", withdrawn=True))

    async def _once(self, stream: _CompletionStream) -> NewTokens | None:
        """Send the request to one server. Returns the last part of the answer; None if the server did not finish it."""
        async with self._taken(stream.ask.rollout) as server:
            stream.server, stream.ident, stream.known = server, self.new_ident(), 0
            try:
                return await self._follow(stream, server)
            except asyncio.CancelledError:
                if server.healthy:
                    raise
            except ServerGoneError as error:
                stream.server = None
                self.lose(server, str(error))
            finally:
                stream.server, stream.ident = None, ""
        return None

    @asynccontextmanager
    async def _taken(self, rollout: tuple[int, ...]) -> AsyncIterator[ServerConnection]:
        """Reserve a server. If no server is left, this waits until the producer ends."""
        while True:
            await self._open.wait()
            if not self.healthy:
                await asyncio.Event().wait()
            server = self._server_of(rollout)
            server.running += 1
            try:
                async with server.slots:
                    if server.healthy and self._open.is_set():
                        yield server
                        return
            finally:
                server.running -= 1

    def _server_of(self, rollout: tuple[int, ...]) -> ServerConnection:
        """Return the server of a rollout."""
        server = self._places.pop(rollout, None)
        if server is None or not server.healthy:
            server = min(self.healthy, key=lambda one: (one.running, self._given[one]))  # rollouts that run tools have no requests
            self._given[server] += 1
        if rollout:
            self._places[rollout] = server
        if len(self._places) > _ROLLOUTS:
            self._places.popitem(last=False)
        return server

    async def _follow(self, stream: _CompletionStream, server: ServerConnection) -> NewTokens | None:
        dialect, name, since = server.dialect, stream.ask.name, len(server.served)
        path, body = dialect.question(stream.ident, stream.ask)
        try:
            async with server.line.stream(path, body) as messages:
                async for message in messages:
                    try:
                        heard = dialect.heard(stream.ask, message, stream.known)
                    except MALFORMED_RESPONSE as error:
                        raise ServerGoneError(f"it sent a message that is not part of an answer: {str(message)[:300]}") from error
                    stream.known += len(heard.tokens)
                    if heard.finish:
                        versions = server.versions_of(heard.labels, since)
                        if len(versions) != stream.known:
                            raise ServerGoneError(f"it reported versions of {len(versions)} tokens, for an answer of {stream.known}")
                        return NewTokens(name, heard.tokens, heard.logprobs, versions, heard.finish)
                    if heard.tokens:
                        self._put(NewTokens(name, heard.tokens, heard.logprobs))
        except ServerAnswerError as error:
            if error.status == 429:  # it is busy
                await asyncio.sleep(_BUSY)
                return None
            if error.status >= 500:
                raise ServerGoneError(str(error)) from error
            return NewTokens(name, finish=f"error: {error}")
        raise ServerGoneError("it ended an answer without a reason")

    async def _order_drop(self, streams: Sequence[_CompletionStream]) -> None:
        for server in self.healthy:
            idents = [stream.ident for stream in streams if stream.server is server]
            if not idents:
                continue
            try:
                await server.dialect.drop(idents)
            except (ServerGoneError, ServerAnswerError) as error:
                self.lose(server, str(error))

    async def _watch_silence(self) -> None:
        """Take a server out of use if it has requests and sends nothing at all for too long."""
        while True:
            await asyncio.sleep(min(_LOOK, self._silence / 10))
            for server in self.healthy:
                if not server.running or not self._open.is_set():
                    server.line.heard = time.monotonic()
                elif time.monotonic() - server.line.heard > self._silence:
                    self.lose(server, f"it was asked for {server.running} answers and sent nothing for {self._silence:g} s")
