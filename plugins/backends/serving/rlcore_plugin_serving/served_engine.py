"""External servers as one engine. The connections are in the event loop of a thread; the producer's own thread sends commands and takes
tokens."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

import numpy as np

from rlcore.api import ConfigError, RunError, WeightsError
from rlcore_plugin_serving.completion_streams import CompletionStreams
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.joined_transfer import FINISH
from rlcore_plugin_serving.partial_completions import OTHER_STOP, NewTokens
from rlcore_plugin_serving.resumed_requests import ResumedRequests
from rlcore_plugin_serving.server_client import MALFORMED_RESPONSE, ServerAnswerError, ServerClient, ServerGoneError
from rlcore_plugin_serving.server_connection import ServerConnection
from rlcore_plugin_serving.serving_engine import EngineRequest, ServingEngine
from rlcore_plugin_serving.version_folder import VersionFolders

__all__ = ["ServedEngine", "ServerAccess"]

_OTHERS = 5.0
"""Seconds to wait for further servers once one is reachable; a later server joins at an update."""
_PAUSE = 0.5
"""Seconds between two attempts to reach a server that is not reachable yet."""
_LOOK = 0.5
"""Seconds after which a caller that waits for a token checks whether a server is left."""
_CLOSING = 30.0
_NOTHING = sha256(b"").hexdigest()
"""The digest that vLLM's checker computes of a tensor that was packed for the CPU: it sees none of its numbers."""
_CLOSE_SCORES = {"float32": 1e-3, "float64": 1e-3}
_ROUGH_SCORES = 0.25
"""Nats by which log probabilities of the same weights may differ between two servers.

The order of sums causes small gaps, and 8 bits of mantissa much larger ones (0.036 was seen between bfloat16 and float32). Labels and
checksums show exactly which weights a server serves; this bound finds a server that computes something else with them.
"""


class ServerAccess:
    """The addresses of the servers, their keys, and the time limits."""

    def __init__(
        self, addresses: Sequence[str], *, key: str = "", admin_key: str = "", start: float, silence: float, connections: int, verify: bool
    ) -> None:
        self.addresses = tuple(address.rstrip("/") for address in addresses)
        self.key, self.admin_key = key, admin_key
        self.start, self.silence, self.connections, self.verify = start, silence, connections, verify


class ServedEngine(ServingEngine):
    """All servers of one producer as one engine.

    ``vocabulary`` and ``max_tokens``: required of every server. ``folders``: where versions are written for them; None if there are no new
    versions. ``dtype``: of the weights, if a server does not report it.
    """

    def __init__(self, access: ServerAccess, *, vocabulary: int, max_tokens: int, dtype: str, folders: VersionFolders | None) -> None:
        self.vocabulary = vocabulary  # type: ignore[misc]
        self._access, self._max_tokens, self._dtype, self._folders = access, max_tokens, dtype, folders
        self._parts: queue.SimpleQueue[NewTokens | None] = queue.SimpleQueue()
        self._asks = ResumedRequests()
        self._ready: list[NewTokens] = []
        self._label = f"rlcore-{uuid4().hex[:8]}"
        self._version, self._loaded, self._paused = 0, "", False
        self._sums: dict[str, str] = {}
        self._changed: bool | None = None
        self._dtypes: set[str] = set()
        self._over = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served-engine", daemon=True)
        self._thread.start()
        self._servers: list[ServerConnection] = []
        self._end = weakref.finalize(self, _stop, self._loop, self._thread, self._servers)
        try:
            self._wait(self._begin())
        except BaseException:
            self.end()
            raise

    @property
    def keeps(self) -> bool:
        """Whether all servers keep requests during an update."""
        return all(server.dialect.keeps for server in self._streams.healthy)

    @property
    def seeds(self) -> bool:
        """Whether a draw depends only on its seed at all healthy servers."""
        return all(server.dialect.facts.seeds for server in self._streams.healthy)

    def unsupported(self, ask: EngineRequest) -> str:
        """Return the part of the request for which a server would sample differently than asked."""
        return next((problem for server in self._streams.healthy if (problem := server.dialect.unsupported(ask))), "")

    def unweighable(self) -> str:
        """Return why no version can be written into a server; "" if all servers take weights."""
        closed = [server for server in self._streams.healthy if not server.dialect.facts.takes_weights]
        if closed:
            server = closed[0]
            return (
                f"the {server.dialect.kind} server {server.address} takes no weights, so it can be used for evaluation and scoring only; "
                f"start it with: {server.dialect.start_hint}"
            )
        return (
            "" if self._folders else "inference.options.shared_folder names no folder for weights; name one that producers and servers see"
        )

    # --- requests ------------------------------------------------------------------------------------------------------

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Send each request to the server that has the fewest."""
        self._require_servers()
        self._asks.add(asks)
        self._loop.call_soon_threadsafe(self._streams.start, list(asks))

    def take(self, timeout: float) -> list[NewTokens]:
        """Return all parts that have come. Waits for the first one, even beyond ``timeout``, like engines in processes.

        A server that sends nothing is lost after some time; if it was the last one, this raises RunError.
        """
        self._require_servers()
        found = self._taken()
        while not found:
            with contextlib.suppress(queue.Empty):
                found = self._seen([self._parts.get(timeout=_LOOK)])
            self._require_servers()
        return found + self._taken()

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop the requests, and wait until the servers have dropped each."""
        names = list(names)
        waiting = self._asks.drop(names)
        self._wait(self._streams.drop([name for name in names if name in self._asks]))
        return waiting + self._taken()

    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """Score by every server. Raises WeightsError, which names the server, if one differs from the first by more than rounding."""
        found = self._wait(self._scores(token_ids))
        self._require_servers()
        (first, scores), *others = found
        for server, other in others:
            most = max(self._rounding(first), self._rounding(server))
            worst = float(np.abs(scores - other).max())
            if not worst <= most:
                raise WeightsError(
                    f"{server.address} serves version {self._version} as {first.address} does, but its log probabilities differ by "
                    f"{worst:.2g} nats, of which {most:g} may be rounding; one of the two computes with other weights than it reports"
                )
        return scores  # type: ignore[no-any-return]

    # --- weights -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the servers. Requests stay at servers that keep them; otherwise they are dropped, and sent again later."""
        if self._paused:
            return
        self._require_servers()
        self._paused = True
        interrupted = [] if self.keeps else self._asks.interrupt()
        self._wait(self._pause(interrupted))
        self._ready += self._taken()
        self._require_servers()

    def load(self, incoming: IncomingWeights) -> None:
        """Write the version, and let every reachable server read it; a lost server that is reachable again is met first."""
        if self._folders is None:
            raise RunError("no folder for weights was named")  # begin_update has already refused this
        folder = self._folders.write(incoming)
        self._dtypes = {info.dtype for info in incoming.manifest.tensors}
        self._loaded = f"{self._label}-{incoming.version}"
        self._wait(self._load(folder, self._loaded, incoming.version))
        self._require_servers()

    def serve(self, version: int) -> None:
        """Verify the weights of the servers, and continue."""
        self._version = version
        self._wait(self._serve(version))
        if self._folders is not None:
            self._folders.keep_newest()
        self._paused = False
        self._require_servers()
        self._loop.call_soon_threadsafe(self._streams.start, self._asks.resume())

    def ranks(self) -> int:
        """Return the number of workers of the only server."""
        return int(self._wait(self._only().dialect.ranks()))

    def expect(self, version: int) -> None:
        """Set the version that ``carry_out`` brings."""
        self._version, self._loaded = version, f"{self._label}-{version}"

    def carry_out(self, method: str, words: Mapping[str, Any] | None) -> Any:
        """Let the only server carry out a command of vLLM's own transfer. Without words it ends an update that broke off.

        Raises RunError if the server does not carry it out.
        """
        server = self._only()
        label = self._loaded if words is not None else f"unfinished-{self._loaded}"
        try:
            answer = self._wait(server.dialect.carry_out(method, words or {}, label))
        except (ServerGoneError, ServerAnswerError) as error:
            raise RunError(f"{server.address} does not carry out {method}: {error}") from error
        if method == FINISH:
            server.served.append((label, self._version))
        return answer

    def _only(self) -> ServerConnection:
        if len(self._servers) > 1 or not self._streams.healthy:
            raise RunError(
                f"vLLM's own transfer sends to one server of a producer, but this one has {len(self._streams.healthy)} of "
                f"{len(self._servers)}; type --transport auto, or name one address per producer"
            )
        return self._streams.healthy[0]

    @property
    def transfers(self) -> frozenset[str]:
        """The ways by which weights can be transferred."""
        only = [server.dialect.transfers for server in self._streams.healthy]
        return only[0] if len(self._servers) == len(only) == 1 else frozenset({"host"})

    def tensors_changed(self, changed: bool | None) -> None:
        """Set whether the next version has other tensors than the one before; None if this is not known."""
        self._changed = changed

    def end(self) -> None:
        """Close the connections; the servers continue to run."""
        if self._thread.is_alive() and hasattr(self, "_streams"):
            self._wait(self._streams.end())
        self._end()
        if self._folders is not None:
            self._folders.close()
            self._folders = None

    # --- in the loop ---------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        access = self._access
        for address in access.addresses:
            line = ServerClient(address, access.key, access.admin_key, silence=access.silence, connections=access.connections)
            self._servers.append(ServerConnection(line, access.connections))
        self._streams = CompletionStreams(self._servers, access.silence, self._parts.put, self._none_left)
        meeting = [asyncio.create_task(self._met_in_time(server)) for server in self._servers]
        await asyncio.wait(meeting, return_when=asyncio.FIRST_COMPLETED)
        _, late = await asyncio.wait(meeting, timeout=_OTHERS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        failed = [error for task in meeting if not task.cancelled() and (error := task.exception()) is not None]
        refused = [error for error in failed if not isinstance(error, ServerGoneError)]
        if refused:
            raise refused[0]
        if not self._streams.healthy:
            said = "; ".join(f"{server.address}: {server.why}" for server in self._servers)
            raise ConfigError(
                f"no server of inference.options.addresses was healthy within {access.start:g} s ({said}); start it, or raise "
                "inference.options.start_seconds"
            )

    async def _met_in_time(self, server: ServerConnection) -> None:
        until = time.monotonic() + self._access.start
        while True:
            try:
                async with asyncio.timeout(max(_PAUSE, until - time.monotonic())):
                    label = await server.meet(max_tokens=self._max_tokens, vocabulary=self.vocabulary)
                if label.startswith("unfinished-") and self._folders is None:
                    raise ConfigError(f"{server.address} holds weights that were only partly written, by a producer that died; restart it")
                server.served.append((label, self._version))
                return
            except (ServerGoneError, TimeoutError) as error:
                server.why = str(error) or f"it did not identify itself for {self._access.start:g} s"
                if time.monotonic() + _PAUSE > until:
                    raise ServerGoneError(server.why) from error
            await asyncio.sleep(_PAUSE)

    async def _pause(self, interrupted: Sequence[str]) -> None:
        self._streams.hold()
        if interrupted:
            await self._streams.drop(interrupted)
        await self._of_all("pause", lambda server: server.dialect.pause())

    async def _load(self, folder: str, label: str, version: int) -> None:
        await asyncio.gather(*(self._come_back(server) for server in self._servers if not server.healthy))
        await self._of_all("load the weights", lambda server: server.dialect.load(folder, label))
        for server in self._streams.healthy:
            server.served.append((label, version))

    async def _come_back(self, server: ServerConnection) -> None:
        """Meet a server that was lost or late, if it is reachable."""
        try:
            async with asyncio.timeout(_OTHERS):  # all other servers wait meanwhile
                await server.meet(max_tokens=self._max_tokens, vocabulary=self.vocabulary)
                await server.dialect.pause()
        except (ServerGoneError, ServerAnswerError, ConfigError, TimeoutError) as error:
            why = str(error) or "it does not come back"
            server.lose(why)
            server.why = why

    async def _serve(self, version: int) -> None:
        if self._access.verify:
            await self._prove(version)
        await self._of_all("resume", lambda server: server.dialect.resume())
        self._streams.resume()

    async def _prove(self, version: int) -> None:
        """Check that servers that read one folder hold the same weights, and not the previous ones, by their own checkers.

        The second check applies only if weights are not rounded on the way and the checker sees all of them.
        """
        sums: dict[ServerConnection, dict[str, str]] = {}

        async def look(server: ServerConnection) -> None:
            sums[server] = await server.dialect.checksums()

        await self._of_all("take checksums", look)
        known = [(server, sums[server]) for server in self._streams.healthy if sums.get(server)]
        for server, found in known[1:]:
            first, expected = known[0]
            differing = [name for name in expected if found.get(name) != expected[name]]
            if set(found) == set(expected) and differing:  # servers that split a model differently have other tensors
                raise WeightsError(
                    f"{server.address} holds other weights than {first.address} after both read version {version}: {differing[0]!r} differs"
                )
        if known:
            server, found = known[0]
            exact = self._dtypes == {server.dialect.facts.dtype} and _NOTHING not in found.values()
            if self._changed and exact and found == self._sums:
                raise WeightsError(f"{server.address} holds the same weights as before, although version {version} has others")
            self._sums = found

    async def _scores(self, token_ids: Sequence[int]) -> list[tuple[ServerConnection, np.ndarray]]:
        found: list[tuple[ServerConnection, np.ndarray]] = []

        async def one(server: ServerConnection) -> None:
            scores, label = await server.dialect.score(self._streams.new_ident(), token_ids)
            if label != server.label:
                raise ServerGoneError(f"it scores with weights {label!r}, but {server.label!r} are served: it was restarted")
            found.append((server, scores))

        await self._of_all("score", one)
        order = {server: place for place, server in enumerate(self._servers)}
        return sorted(found, key=lambda pair: order[pair[0]])

    async def _of_all(self, doing: str, call: Any) -> None:
        """Call it for every healthy server, in parallel. A server that is gone is lost; one that refuses ends the update."""

        async def one(server: ServerConnection) -> None:
            try:
                await call(server)
            except ServerGoneError as error:
                self._streams.lose(server, str(error))
            except MALFORMED_RESPONSE as error:
                self._streams.lose(server, f"it gives an unknown answer when it should {doing} ({type(error).__name__}: {error})")
            except ServerAnswerError as error:
                if error.status >= 500 and len(self._streams.healthy) > 1:
                    self._streams.lose(server, str(error))
                    return
                raise WeightsError(f"{server.address} does not {doing}: {error}{_hint(doing)}") from error

        outcomes = await asyncio.gather(*(one(server) for server in self._streams.healthy), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _rounding(self, server: ServerConnection) -> float:
        return _CLOSE_SCORES.get(server.dialect.facts.dtype or self._dtype, _ROUGH_SCORES)

    def _taken(self) -> list[NewTokens]:
        found, self._ready = self._ready, []
        parts = []
        while not self._parts.empty():
            parts.append(self._parts.get())
        return found + self._seen(parts)

    def _seen(self, parts: Sequence[NewTokens | None]) -> list[NewTokens]:
        came = [part for part in parts if part is not None]
        found = self._asks.hand_on(came)
        others = [part.name for part in came if part.finish == OTHER_STOP]
        if not self._paused and (left := self._asks.resume(others)):
            self._loop.call_soon_threadsafe(self._streams.start, left)
        return found

    def _wait(self, order: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(order, self._loop).result()

    def _none_left(self) -> None:
        said = "; ".join(f"{server.address}: {server.why}" for server in self._servers)
        self._over = f"no server of inference.options.addresses is left ({said})"
        self._parts.put(None)  # wakes a caller that waits for tokens

    def _require_servers(self) -> None:
        if self._over:
            raise RunError(self._over)


def _hint(doing: str) -> str:
    return "; it must see the folder, by the name in inference.options.shared_folder_there" if doing.startswith("load") else ""


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, servers: Sequence[ServerConnection]) -> None:
    async def hang_up() -> None:
        for server in servers:
            await server.line.close()

    if thread.is_alive():
        asyncio.run_coroutine_threadsafe(hang_up(), loop).result(_CLOSING)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSING)
    if not loop.is_running():
        loop.close()
