"""A weight transfer that vLLM's own engines carry out. The trainer's process and the producers' processes exchange messages; the weights
go from the trainer's side to the engine's workers. The trainer's weights are first copied to its host memory, so that it can train or
sleep while they are sent."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from rlcore_plugin_workers.background import BackgroundPublisher, HostVersion

from rlcore.api import Bucket, WeightsError
from rlcore.api.weights import OnFailure, Receiver, RemoteSnapshot
from rlcore_plugin_vllm.engine_group import TICK, BrokenGroupError, EngineGroup, Sender, disconnect

__all__ = ["EnginePublisher", "EngineReceiver"]

_GRACE = 2.0
"""Seconds that members that have asked for a version wait for one that has not."""


@dataclass(eq=False)
class _Engine:
    """A producer, as the publisher knows it.

    ``served``: the version of its engine, as it reported; ``ready``: the last round in which it asked for weights.
    """

    channel: Connection
    name: str
    pid: int
    ranks: int
    head_of: str
    served: int = -1
    ready: int = 0
    gone: bool = False

    def tell(self, *word: Any) -> None:
        with suppress(OSError, ValueError):  # it is gone, which the thread that listens to it finds out
            self.channel.send(word)


class EnginePublisher(BackgroundPublisher):
    """The trainer's end. A round sends one version to the engines that lack it; if the members have not changed, their group is kept."""

    def __init__(
        self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None, *, sender: Sender, host: str = "127.0.0.1"
    ) -> None:
        self._changed = threading.Condition()
        self._sender = sender
        self._engines: list[_Engine] = []
        self._group: EngineGroup | None = None
        self._epoch = self._round = 0
        self._key = secrets.token_bytes(16)
        self._channels: set[Connection] = set()
        self._listener = Listener((host, 0), backlog=64)
        self._address = self._listener.address
        super().__init__(deadline, bucket_bytes, on_failure)
        threading.Thread(target=self._accept_forever, name="weights-engines", daemon=True).start()

    def address(self) -> tuple[Any, bytes]:
        """Return the address for messages, and its key."""
        return self._address, self._key

    def left(self, name: str) -> None:
        """See Publisher."""
        with self._changed:
            for engine in self._engines:
                engine.gone = engine.gone or engine.name == name
            self._changed.notify_all()

    # --- the engines -----------------------------------------------------------------------------------------------------

    def _accept_forever(self) -> None:
        while not self._closed:
            try:
                channel = self._listener.accept()
            except OSError:  # closed
                continue
            with self._changed:
                self._channels.add(channel)
            threading.Thread(target=self._meet, args=(channel,), name="weights-engine", daemon=True).start()

    def _meet(self, channel: Connection) -> None:
        """Authenticate in this thread and not in the one that accepts, so that a silent peer does not block others."""
        kept = False
        with suppress(OSError, EOFError, AuthenticationError):  # gone, or a peer without the key
            deliver_challenge(channel, self._key)
            answer_challenge(channel, self._key)
            kind, *said = channel.recv()
            group = self._group
            if kind == "engine":
                if kept := group is not None and group.key == said[0]:
                    assert group is not None
                    group.attach(said[1], channel)
            else:
                self._attend(_Engine(channel, *said))
        with self._changed:
            self._channels.discard(channel)
        if not kept:  # the group closes its own channels
            channel.close()

    def _attend(self, engine: _Engine) -> None:
        """Read a producer's messages until it closes the connection."""
        with self._changed:
            self._engines.append(engine)
            if self._waiting is None and self._newest is not None and not self._closed:
                self._waiting = self._newest  # the version is not published again for a newcomer
            self._changed.notify_all()
        try:
            while True:
                kind, number = engine.channel.recv()
                with self._changed:
                    if kind == "ready":
                        engine.ready = number
                    elif kind == "serves":
                        engine.served = max(engine.served, number)
                    elif kind == "broke" and self._group is not None and self._group.epoch == number:
                        self._group.close()  # the others wait in it, and the next round needs a new one
                    self._changed.notify_all()
        finally:
            with self._changed:
                engine.gone = True
                self._engines = [other for other in self._engines if other is not engine]
                self._changed.notify_all()

    def _end(self, engine: _Engine, why: str) -> None:
        """Stop waiting for an engine: the runtime ends its process and starts another one.

        The process number is only the engine's own report, and the engine may run on another host.
        """
        engine.gone = True
        advice = "check whether it was stopped or overloaded, or raise --weights-deadline"
        self.on_drop(f"producer {engine.name} (process {engine.pid}) {why} for {self._deadline:g} s, so it was ended; {advice}")
        self.on_end(engine.name)

    # --- rounds ------------------------------------------------------------------------------------------------------------

    def _send(self, held: HostVersion) -> None:
        version = held.layout.version
        while True:
            with self._changed:
                targets = self._lacking(version)
                if self._closed or not targets or self._superseded(held):
                    return
            self._round += 1
            asked = self._who_asks(targets, held)
            if asked and not (self._sent_to(asked, held) and self._are_served(asked, held)):
                self._drop_group()

    def _lacking(self, version: int) -> list[_Engine]:
        """Return the engines that do not serve this version yet. Call this with ``_changed`` held."""
        return [engine for engine in self._engines if not engine.gone and engine.served < version]

    def _superseded(self, held: HostVersion) -> bool:
        """Return whether a newer version waits, which should be sent instead. Call this with ``_changed`` held."""
        return self._waiting is not None and self._waiting is not held

    def _who_asks(self, targets: list[_Engine], held: HostVersion) -> list[_Engine]:
        """Announce the version, and wait until all engines have asked for it, or some have and a short time has passed.

        Returns [] if other engines lack it now, or a newer version has come: the caller then starts again.
        """
        version, number, enough = held.layout.version, self._round, time.monotonic() + min(_GRACE, self._deadline)
        for engine in targets:
            engine.tell("news", number, version)
        with self._changed:
            while True:
                if self._closed or self._superseded(held) or self._lacking(version) != targets:
                    return []
                asked = [engine for engine in targets if engine.ready == number]
                if len(asked) == len(targets) or (asked and time.monotonic() > enough):
                    return asked
                self._changed.wait(TICK)

    def _sent_to(self, targets: list[_Engine], held: HostVersion) -> bool:
        """Run one round; return False if it broke off.

        vLLM's trainer engine may wait in a collective that nothing can end, so it has its own thread.
        """
        if self._group is None or self._group.broken or set(self._group.members) != set(targets):
            self._drop_group()
            self._epoch += 1
            self._group = EngineGroup(self._epoch, targets, self._sender)
        group, outcome = self._group, list[BaseException | None]()
        group.heard = time.monotonic()
        for place, engine in enumerate(targets):
            engine.tell("go", self._remote(held, group, place))

        def update() -> None:
            try:
                group.update(held)
                outcome.append(None)
            except BaseException as error:
                outcome.append(error)
            with self._changed:
                self._changed.notify_all()

        threading.Thread(target=update, name="weights-sender", daemon=True).start()
        with self._changed:
            while not outcome:
                if self._closed or group.broken or any(engine.gone for engine in targets):
                    return False
                if time.monotonic() - group.heard > self._deadline:
                    for place in sorted(group.waits_for) or range(len(targets)):
                        self._end(targets[place], f"stalled in the transfer of version {held.layout.version}")
                    return False
                self._changed.wait(TICK)
        error = outcome[0]
        if error is None or isinstance(error, BrokenGroupError):
            return error is None
        self._drop_group()  # so that no member waits in it
        if isinstance(error, WeightsError):
            raise error
        raise WeightsError(
            f"version {held.layout.version} could not be sent by vLLM's transfer: {type(error).__name__}: {error}"
        ) from error

    def _are_served(self, asked: list[_Engine], held: HostVersion) -> bool:
        """Wait until each engine serves the version, or a newer one has come; silent engines are ended. Returns False if the group
        broke."""
        group, version = self._group, held.layout.version
        assert group is not None

        def late() -> list[_Engine]:
            return [engine for engine in asked if not engine.gone and engine.served < version]

        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or group.broken or self._superseded(held) or not late(), self._deadline):
                for engine in late():
                    self._end(engine, f"received version {version} but did not report that it serves it")
            return not group.broken

    def _remote(self, held: HostVersion, group: EngineGroup, place: int) -> RemoteSnapshot:
        manifest = held.layout.manifest
        return RemoteSnapshot(
            version=held.layout.version,
            probe=held.layout.probe,
            kind=manifest.kind,
            extra=dict(manifest.extra),
            infos=manifest.tensors,
            epoch=group.epoch,
            info={"address": self._address, "key": self._key, "group": group.key, "member": place, "deadline": self._deadline},
            parts=(Bucket(version=held.layout.version, index=0, info={"orders": group.key}, epoch=group.epoch),),
        )

    def _drop_group(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _interrupt(self) -> None:
        group = self._group
        if group is not None:
            group.close()

    def _free(self) -> None:
        self._drop_group()
        with self._changed:
            channels = list(self._channels)
        for channel in channels:
            disconnect(channel)
        with suppress(OSError):
            socket.create_connection(self._address).close()  # wakes the thread that accepts
        self._listener.close()


class EngineReceiver(Receiver):
    """A producer's end, which exchanges only messages.

    It reports that its engine is free when the producer asks for weights, and returns the snapshot that the trainer then sends.
    """

    def __init__(self, name: str, address: tuple[Any, bytes], on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        try:
            self._channel = Client(address[0], authkey=address[1])
        except (OSError, EOFError, AuthenticationError) as error:
            raise WeightsError(f"producer {name} cannot reach the trainer at {address[0]} for weights: {error}") from error
        self._lock = threading.Lock()
        self._news: tuple[int, int] | None = None
        self._go: RemoteSnapshot | None = None
        self._closed = False

    def introduce(self, engine: Mapping[str, Any]) -> None:
        """See Receiver. Sends the producer's name and process, and the facts about its engine."""
        self._tell("producer", self.name, os.getpid(), int(engine["ranks"]), str(engine["head_of"]))
        threading.Thread(target=self._listen, name=f"weights-{self.name}", daemon=True).start()

    def newer_than(self, version: int) -> RemoteSnapshot | None:
        """See Receiver. This asks for an announced version, which comes once the others have asked for it too."""
        with self._lock:
            go, self._go = self._go, None
            if go is not None and go.version > version:
                return go
            news, self._news = self._news, None
        if news is not None:
            self._tell(*(("ready", news[0]) if news[1] > version else ("serves", version)))
        return None

    def release(self, version: int) -> None:
        """See Receiver."""
        self._tell("serves", version)

    def on_group_broken(self, epoch: int) -> None:
        """See Receiver."""
        self._tell("broke", epoch)

    def close(self) -> None:
        """See Receiver."""
        self._closed = True
        disconnect(self._channel)

    def _tell(self, *word: Any) -> None:
        with self._lock, suppress(OSError):  # the trainer is gone, which others report
            self._channel.send(word)

    def _listen(self) -> None:
        with suppress(OSError, EOFError):
            while not self._closed:
                kind, *said = self._channel.recv()
                with self._lock:
                    if kind == "news":
                        self._news, self._go = (said[0], said[1]), None
                    elif kind == "go":
                        self._go = said[0]
                self.on_news()
        self._channel.close()
