"""The publisher's side of its connections: who reads which buffer, from the first word to the last, killed or not.

One thread waits for what receivers say. It never waits for a single one of them, so a receiver that is stopped disturbs nobody else.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rlcore.contracts.errors import WeightsError
from rlcore.weights.shared_wire import Buffer, Line, WireKind, WireMessage, listen, peer_pid, receive

__all__ = ["PAUSE", "Reader", "Readers"]

PAUSE = 1.0
"""Seconds without new connections after one that could not be accepted; most likely this process has no descriptor left for it."""


@dataclass(slots=True, eq=False)
class Reader:
    """One receiver: ``holds`` says which buffer it may be reading under which version."""

    line: Line
    pid: int
    name: str = ""
    holds: dict[int, Buffer] = field(default_factory=dict)
    attached: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return f"producer {self.name} (process {self.pid})"

    def attach(self, buffer: Buffer) -> None:
        """Hand it the buffer, once."""
        if buffer.number not in self.attached:
            self.attached.add(buffer.number)
            self.line.say(WireMessage(WireKind.ATTACH, buffer.number, buffer.size), buffer.descriptor)

    def detach(self, buffer: Buffer) -> None:
        """Tell it that the buffer will not be used again."""
        if buffer.number in self.attached:
            self.attached.discard(buffer.number)
            self.line.say(WireMessage(WireKind.DETACH, buffer.number))


class Readers:
    """All receivers. Whatever is read or changed here is read or changed under ``changed``, which is notified of every change.

    ``fail`` is told, not under ``changed``, why the thread ended before ``close``: after that all connections are closed.
    """

    def __init__(self, changed: threading.Condition, greet: Callable[[Reader], None], fail: Callable[[str], None]) -> None:
        self._changed = changed
        self._greet = greet
        self._fail = fail
        self._listener, self.name = listen()
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._all: dict[int, Reader] = {}
        self._closing = False
        self._paused_until: float | None = None
        self._thread = threading.Thread(target=self._wait_forever, name="weights-readers", daemon=True)
        self._thread.start()

    def present(self) -> list[Reader]:
        """Those that have said their name."""
        return [reader for reader in self._all.values() if reader.name]

    def holding(self, buffer: Buffer) -> list[Reader]:
        """Those that may be reading it."""
        return [reader for reader in self._all.values() if buffer in reader.holds.values()]

    def tell(self, message: WireMessage, version: int) -> None:
        """Say it to all that hold this version."""
        for reader in self._all.values():
            if version in reader.holds:
                reader.line.say(message)
        self.look_up()

    def look_up(self) -> None:
        """Messages were kept for want of room: have the thread send them when there is some."""
        if any(reader.line.full for reader in self._all.values()):
            self._wake()

    def close(self) -> None:
        """Take leave of everybody. Not under ``changed``."""
        with self._changed:
            if not self._closing:
                self._closing = True
                for reader in self._all.values():
                    reader.line.say(WireMessage(WireKind.GOODBYE))
                self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was called often enough
            self._mouth.send(b"!")

    def _wait_forever(self) -> None:
        try:
            while not self._closing:
                self._wait_once()
        except Exception as error:  # a thread has nobody above it
            self._fail(f"no producer gets weights any more: {type(error).__name__}: {error}")
        finally:
            with self._changed:
                self._closing = True
                self._close_all()
                self._changed.notify_all()

    def _wait_once(self) -> None:
        ready = self._selector.select(None if self._paused_until is None else max(0.0, self._paused_until - time.monotonic()))
        with self._changed:
            for key, events in ready:
                self._attend(key, events)
            for reader in self._all.values():
                self._watch(reader)
            if self._paused_until is not None and time.monotonic() >= self._paused_until:
                self._paused_until = None
                self._selector.register(self._listener, selectors.EVENT_READ)
            self._changed.notify_all()

    def _attend(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._ear:
            self._ear.recv(4096)
        elif key.fileobj is self._listener:
            self._accept()
        elif (reader := self._all.get(key.fd)) is not None:
            if events & selectors.EVENT_WRITE:
                reader.line.flush()
            if events & selectors.EVENT_READ:
                self._listen_to(reader)

    def _accept(self) -> None:
        try:
            channel, _ = self._listener.accept()
        except OSError:
            # It stays in the queue, so the selector would report it again at once, and for ever.
            self._selector.unregister(self._listener)
            self._paused_until = time.monotonic() + PAUSE
            return
        try:
            reader = Reader(Line(channel), peer_pid(channel))
        except (WeightsError, OSError):
            channel.close()
            return
        self._selector.register(channel, selectors.EVENT_READ)
        self._all[channel.fileno()] = reader

    def _listen_to(self, reader: Reader) -> None:
        try:
            heard = receive(reader.line.channel)
        except BlockingIOError:
            return
        except (OSError, WeightsError):
            heard = None
        if heard is None:
            self._forget(reader)
            return
        message, _ = heard
        if message.kind is WireKind.HELLO:
            reader.name = message.text
            self._greet(reader)
        elif message.kind is WireKind.RELEASE:
            reader.holds.pop(message.version, None)

    def _watch(self, reader: Reader) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if reader.line.full else 0)
        if self._selector.get_key(reader.line.channel).events != wanted:
            self._selector.modify(reader.line.channel, wanted)

    def _forget(self, reader: Reader) -> None:
        self._selector.unregister(reader.line.channel)
        del self._all[reader.line.channel.fileno()]
        reader.line.close()

    def _close_all(self) -> None:
        self._selector.close()
        for reader in self._all.values():
            reader.line.close()
        self._all.clear()
        for end in (self._listener, self._ear, self._mouth):
            end.close()
