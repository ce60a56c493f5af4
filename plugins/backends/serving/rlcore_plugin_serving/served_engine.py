"""Servers that somebody else runs, as one engine. A thread has an event loop in which the connections live; the producer's own thread
gives orders and takes tokens."""

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
"""Seconds that further servers are waited for once one is there; who comes later joins at an update."""
_PAUSE = 0.5
"""Seconds between two tries to reach a server that is not there yet."""
_LOOK = 0.5
"""Seconds after which somebody who waits for a token looks whether a server is left."""
_CLOSING = 30.0
_NOTHING = sha256(b"").hexdigest()
"""What vLLM's checker takes of a tensor that was packed for the CPU: it sees none of its numbers."""
_CLOSE_SCORES = {"float32": 1e-3, "float64": 1e-3}
_ROUGH_SCORES = 0.25
"""Nats by which log probabilities of the same weights may differ between two servers: by the order of sums, and with 8 bits of mantissa by
much more (0.036 were seen between bfloat16 and float32). Their labels and checksums say exactly which weights they serve; this finds a
server that computes something else with them."""


class ServerAccess:
    """Where the servers are and how they are asked: addresses, keys and bounds of time."""

    def __init__(
        self, addresses: Sequence[str], *, key: str = "", admin_key: str = "", start: float, silence: float, connections: int, verify: bool
    ) -> None:
        self.addresses = tuple(address.rstrip("/") for address in addresses)
        self.key, self.admin_key = key, admin_key
        self.start, self.silence, self.connections, self.verify = start, silence, connections, verify


class ServedEngine(ServingEngine):
    """``vocabulary`` and ``max_tokens``: what every server must have. ``folders``: where versions are written for them; None: none come.
    ``dtype``: of the weights, where a server does not say."""

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
        """Whether all servers keep requests over an update."""
        return all(server.dialect.keeps for server in self._streams.healthy)

    @property
    def seeds(self) -> bool:
        """Whether a draw depends on its seed alone, at every server that was met."""
        return all(server.dialect.facts.seeds for server in self._streams.healthy)

    def unsupported(self, ask: EngineRequest) -> str:
        """What a server would draw otherwise than asked."""
        return next((problem for server in self._streams.healthy if (problem := server.dialect.unsupported(ask))), "")

    def unweighable(self) -> str:
        """Why no version can be written into a server; "" if all take them."""
        closed = [server for server in self._streams.healthy if not server.dialect.facts.takes_weights]
        if closed:
            server = closed[0]
            return (
                f"the {server.dialect.kind} server {server.address} takes no weights, so it can be used for evaluation and scoring alone; "
                f"start it so: {server.dialect.start_hint}"
            )
        return (
            "" if self._folders else "inference.options.shared_folder names no folder for weights; name one that producers and servers see"
        )

    # --- requests ------------------------------------------------------------------------------------------------------

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Each to the server that has the fewest."""
        self._require_servers()
        self._asks.add(asks)
        self._loop.call_soon_threadsafe(self._streams.start, list(asks))

    def take(self, timeout: float) -> list[NewTokens]:
        """All that has come. Waits for the first token beyond ``timeout``, as engines in processes do, too: a server that says nothing is
        lost after a time, and if it was the last one this ends."""
        self._require_servers()
        found = self._taken()
        while not found:
            with contextlib.suppress(queue.Empty):
                found = self._seen([self._parts.get(timeout=_LOOK)])
            self._require_servers()
        return found + self._taken()

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Wait until the servers have let go of each."""
        names = list(names)
        waiting = self._asks.drop(names)
        self._wait(self._streams.drop([name for name in names if name in self._asks]))
        return waiting + self._taken()

    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """By every server. WeightsError, naming it, if one differs from the first by more than rounding."""
        found = self._wait(self._scores(token_ids))
        self._require_servers()
        (first, scores), *others = found
        for server, other in others:
            most = max(self._rounding(first), self._rounding(server))
            worst = float(np.abs(scores - other).max())
            if not worst <= most:
                raise WeightsError(
                    f"{server.address} serves version {self._version} as {first.address} does, and its log probabilities differ by "
                    f"{worst:.2g} nats, of which {most:g} may be rounding; one of the two computes with other weights than it says"
                )
        return scores  # type: ignore[no-any-return]

    # --- weights -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Requests stay at servers that keep them; others drop them, and are asked for them again."""
        if self._paused:
            return
        self._require_servers()
        self._paused = True
        interrupted = [] if self.keeps else self._asks.interrupt()
        self._wait(self._pause(interrupted))
        self._ready += self._taken()
        self._require_servers()

    def load(self, incoming: IncomingWeights) -> None:
        """Write the version, and have every server that is there read it; one that came back is met again before."""
        if self._folders is None:
            raise RunError("no folder for weights was named")  # begin_update has refused them before
        folder = self._folders.write(incoming)
        self._dtypes = {info.dtype for info in incoming.manifest.tensors}
        self._loaded = f"{self._label}-{incoming.version}"
        self._wait(self._load(folder, self._loaded, incoming.version))
        self._require_servers()

    def serve(self, version: int) -> None:
        """Prove what the servers hold, and go on."""
        self._version = version
        self._wait(self._serve(version))
        if self._folders is not None:
            self._folders.keep_newest()
        self._paused = False
        self._require_servers()
        self._loop.call_soon_threadsafe(self._streams.start, self._asks.resume())

    def ranks(self) -> int:
        """Workers of the one server."""
        return int(self._wait(self._only().dialect.ranks()))

    def expect(self, version: int) -> None:
        """The version that comes by ``carry_out``."""
        self._version, self._loaded = version, f"{self._label}-{version}"

    def carry_out(self, method: str, words: Mapping[str, Any] | None) -> Any:
        """An order of vLLM's own transfer, by the one server. Without words it is the end of an update that broke off. RunError if the
        server does not carry it out."""
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
                f"vLLM's own transfer goes to one server of a producer, and this one has {len(self._streams.healthy)} of "
                f"{len(self._servers)}; type --transport auto, or name one address a producer"
            )
        return self._streams.healthy[0]

    @property
    def transfers(self) -> frozenset[str]:
        """Ways by which weights can come."""
        only = [server.dialect.transfers for server in self._streams.healthy]
        return only[0] if len(self._servers) == len(only) == 1 else frozenset({"host"})

    def tensors_changed(self, changed: bool | None) -> None:
        """Whether the version that is loaded next has other tensors than the one before; None: nobody knows."""
        self._changed = changed

    def end(self) -> None:
        """Hang up; the servers go on."""
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
                    raise ConfigError(
                        f"{server.address} holds weights of which only a part was written, by a producer that died; start it anew"
                    )
                server.served.append((label, self._version))
                return
            except (ServerGoneError, TimeoutError) as error:
                server.why = str(error) or f"it did not say what it is for {self._access.start:g} s"
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
        """Meet a server that was lost, or that was late, if it is there."""
        try:
            async with asyncio.timeout(_OTHERS):  # the others wait, with all that they do
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
        """Servers that read one folder hold the same, and not what they held before, by their own checkers. The latter holds only for
        weights that are not rounded on the way, under a checker that sees all of them."""
        sums: dict[ServerConnection, dict[str, str]] = {}

        async def look(server: ServerConnection) -> None:
            sums[server] = await server.dialect.checksums()

        await self._of_all("take checksums", look)
        known = [(server, sums[server]) for server in self._streams.healthy if sums.get(server)]
        for server, found in known[1:]:
            first, expected = known[0]
            differing = [name for name in expected if found.get(name) != expected[name]]
            if set(found) == set(expected) and differing:  # servers that split a model otherwise have other tensors
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
                raise ServerGoneError(f"it scores with weights {label!r} where {server.label!r} are served: it was started anew")
            found.append((server, scores))

        await self._of_all("score", one)
        order = {server: place for place, server in enumerate(self._servers)}
        return sorted(found, key=lambda pair: order[pair[0]])

    async def _of_all(self, doing: str, call: Any) -> None:
        """Call it for every healthy server, side by side. A server that is gone is lost; one that refuses ends the update."""

        async def one(server: ServerConnection) -> None:
            try:
                await call(server)
            except ServerGoneError as error:
                self._streams.lose(server, str(error))
            except MALFORMED_RESPONSE as error:
                self._streams.lose(server, f"it answers otherwise than is known when it should {doing} ({type(error).__name__}: {error})")
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
        self._parts.put(None)  # whoever waits for tokens looks up

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
