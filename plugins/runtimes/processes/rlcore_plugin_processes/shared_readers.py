"""The publisher's side of its connections, which records the version that each receiver reads, from its HELLO to the end of its process.

One thread waits for the messages of all receivers. It never waits for a single one of them, so a stopped receiver does not delay the
others. A receiver holds one version at a time, and is offered the next one when it has released the last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from rlcore.api.weights import WeightsError
from rlcore_plugin_processes.shared_wire import SharedMemory, WireKind, WireMessage, listen, peer_pid, receive

__all__ = ["GRACE", "PAUSE", "Offer", "Reader", "Readers"]

PAUSE = 1.0
"""The seconds without new connections after an attempt that could not be accepted, most likely because this process has no descriptor
left."""
GRACE = 5.0
"""The seconds after which a receiver that still holds an old version is not merely busy, in addition to the time that the version needs at
``SLOWEST``."""

SLOWEST = 1e9
"""The lowest rate, in bytes a second, at which a receiver verifies a version and its engine loads it."""


@dataclass(slots=True, eq=False)
class Offer:
    """A version that receivers may read: its first message, and one message for each sealed bucket."""

    version: int
    memory: SharedMemory
    begin: WireMessage
    sealed: list[WireMessage]


@dataclass(slots=True, eq=False)
class Reader:
    """The state of one receiver.

    ``holds``: the version that it may be reading. ``told``: the number of its buckets that were announced. ``verified``: the number of its
    buckets that the receiver has verified. ``owes``: the time, by the monotonic clock, since which it has verified none of the announced
    buckets. ``late``: the time since which it holds a wholly verified version that is not the newest. ``seen``: the newest version that it
    was offered. ``known``: the buffers whose descriptors it has received. ``news``: whether it knows that a newer version is available.
    ``ended``: whether its process was ended. ``process``: a descriptor of its process, which stays valid when another process gets the
    number; -1 if the system has none.
    """

    channel: socket.socket
    pid: int
    process: int = -1
    name: str = ""
    holds: Offer | None = None
    told: int = 0
    late: float | None = None
    verified: int = 0
    owes: float | None = None
    seen: int = -1
    known: frozenset[int] = frozenset()
    blocked: bool = False
    news: bool = False
    ended: bool = False

    def __str__(self) -> str:
        return f"producer {self.name} (process {self.pid})"

    def advance(self, newest: Offer | None) -> None:
        """Send the pending messages, as far as the socket has room."""
        self.blocked = False
        if self.holds is None and newest is not None and newest.version > self.seen and self._begin(newest):
            self.release()
            self.holds, self.seen = newest, newest.version
        if self.holds is None:
            return
        while self.told < len(self.holds.sealed) and self._say(self.holds.sealed[self.told]):
            self.told += 1
        if self.told > self.verified:
            self.owes = self.owes or time.monotonic()
        if newest is not None and newest is not self.holds:
            if self.verified == len(self.holds.sealed):  # until then ``owes`` shows whether it makes progress
                self.late = self.late or time.monotonic()
            if not self.news and self.told == len(self.holds.sealed):  # only after the last bucket was announced
                self.news = self._say(WireMessage(WireKind.NEWS))

    def release(self) -> None:
        """Record that the receiver holds no version."""
        self.holds, self.told, self.verified, self.late, self.owes, self.news = None, 0, 0, None, None, False

    def has_verified(self, version: int, bucket: int) -> None:
        """Record that the receiver has verified one more bucket, which shows that it is not stopped."""
        if self.holds is not None and self.holds.version == version:
            self.verified = bucket + 1
            self.owes = time.monotonic() if self.told > self.verified else None

    def overdue(self, deadline: float) -> tuple[float, str]:
        """Return the time, by the monotonic clock, at which to end the receiver's process, and the reason. The time is infinity if no one
        waits for it."""
        if self.holds is None or self.ended:
            return float("inf"), ""
        ends = [
            (self.late, f"kept version {self.holds.version} for {deadline:g} s after a newer one was available"),
            (self.owes, f"verified nothing of version {self.holds.version} for {deadline:g} s"),
        ]
        return min(((since + deadline, why) for since, why in ends if since is not None), default=(float("inf"), ""))

    def _begin(self, newest: Offer) -> bool:
        number = newest.memory.number
        said = self._say(newest.begin, None if number in self.known else newest.memory.descriptor)
        if said:  # the receiver also keeps the buffers that the message names
            self.known = self.known & set(newest.begin.numbers[5:]) | {number}
        return said

    def _say(self, message: WireMessage, descriptor: int | None = None) -> bool:
        try:
            # Not socket.send_fds, which ignores its flags.
            carried = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
            self.channel.sendmsg([message.to_bytes()], carried, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.blocked = True
            return False
        except OSError as error:
            self.blocked = error.errno in (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
            return not self.blocked  # Else it is gone; the thread that reads this socket notices it.
        return True


class Readers:
    """All receivers. The caller must hold ``changed`` for every access; ``changed`` is notified of every change.

    ``deadline``: the seconds that a receiver may hold a version after a newer one is available, and that it may take to verify a bucket.
    After that its process is ended. ``dropped`` is then called with a sentence, under ``changed``. ``end`` is called with the receiver's
    name if this kernel gives no handle of its process, because the runtime has one. ``fail`` is called, not under ``changed``, with the
    reason if the thread ends before ``close``.
    """

    def __init__(
        self,
        changed: threading.Condition,
        deadline: float,
        dropped: Callable[[str], None],
        end: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._changed = changed
        self._deadline = deadline
        self._dropped = dropped
        self._end = end
        self._fail = fail
        self._newest: Offer | None = None
        self._listener, self.name = listen()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._all: dict[int, Reader] = {}
        self._closing = False
        self._paused_until: float | None = None
        self._thread = threading.Thread(target=self._wait_forever, name="weights-readers", daemon=True)
        self._thread.start()

    def present(self) -> list[Reader]:
        """Return the receivers that have sent their names."""
        return [reader for reader in self._all.values() if reader.name]

    def holding(self, memory: SharedMemory) -> list[Reader]:
        """Return the receivers that may be reading this memory."""
        return [reader for reader in self._all.values() if reader.holds is not None and reader.holds.memory is memory]

    def grace(self, memory: SharedMemory) -> float:
        """Return the seconds until every receiver that reads the memory has had enough time to verify, load and release it."""
        now, enough = time.monotonic(), GRACE + memory.size / SLOWEST
        return max((enough - (now - (reader.late or now)) for reader in self.holding(memory) if not reader.ended), default=0.0)

    def withdraw(self) -> None:
        """Announce the newest version to no further receiver."""
        self._newest = None

    def offer(self, newest: Offer) -> None:
        """Make this version the newest, and announce its new buckets to every receiver."""
        self._newest = newest
        for reader in self.present():
            reader.advance(newest)
        self._wake()

    def end(self, reader: Reader, why: str) -> None:
        """End the process of a receiver, once. It is forgotten when it is gone."""
        if reader.ended:
            return
        reader.ended = True
        self._dropped(f"{reader} {why}, so it was ended; check whether it was stopped or overloaded, or raise --weights-deadline")
        if reader.pid == os.getpid() or reader.process < 0:  # one process has both ends and must not end itself, or there is no handle
            if reader.holds is not None:
                reader.holds.memory.abandoned = True
            self._forget(reader)
            self._end(reader.name)
        else:
            try:
                signal.pidfd_send_signal(reader.process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # it is gone
                self._forget(reader)

    def close(self) -> None:
        """Send GOODBYE to every receiver, and end the thread. Not under ``changed``."""
        with self._changed:
            if not self._closing:
                self._closing = True
                for reader in self._all.values():
                    reader._say(WireMessage(WireKind.GOODBYE))
                self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a wake-up is pending already
            self._waker.send(b"!")

    def _wait_forever(self) -> None:
        try:
            while not self._closing:
                self._wait_once()
        except Exception as error:  # no caller can catch it here
            self._fail(f"no producer gets weights any more: {type(error).__name__}: {error}")
        finally:
            with self._changed:
                self._closing = True
                self._close_all()
                self._changed.notify_all()

    def _wait_once(self) -> None:
        ready = self._selector.select(self._patience())
        with self._changed:
            for key, events in ready:
                self._handle_event(key, events)
            now = time.monotonic()
            for reader in list(self._all.values()):
                end, why = reader.overdue(self._deadline)
                if now >= end:
                    self.end(reader, why)
            for reader in self._all.values():
                self._watch(reader)
            if self._paused_until is not None and now >= self._paused_until:
                self._paused_until = None
                self._selector.register(self._listener, selectors.EVENT_READ)
            self._changed.notify_all()

    def _patience(self) -> float | None:
        """Return the seconds until the next event that no socket announces."""
        ends = [reader.overdue(self._deadline)[0] for reader in list(self._all.values())]
        if self._paused_until is not None:
            ends.append(self._paused_until)
        end = min(ends, default=float("inf"))
        return None if end == float("inf") else max(0.0, end - time.monotonic())

    def _handle_event(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._woken:
            self._woken.recv(4096)
        elif key.fileobj is self._listener:
            self._accept()
        elif key.data is not None:  # the process has ended, although a child of it may hold the socket
            if key.data in self._all.values():
                self._forget(key.data)
        elif (reader := self._all.get(key.fd)) is not None:
            if events & selectors.EVENT_WRITE:
                reader.advance(self._newest)
            if events & selectors.EVENT_READ:
                self._listen_to(reader)

    def _accept(self) -> None:
        try:
            channel, _ = self._listener.accept()
        except OSError:
            # The connection stays in the queue, so the selector would report it again at once, and for ever.
            self._selector.unregister(self._listener)
            self._paused_until = time.monotonic() + PAUSE
            return
        try:
            reader = Reader(channel, peer_pid(channel))
        except (WeightsError, OSError):
            channel.close()
            return
        with contextlib.suppress(OSError, AttributeError):  # not available: then only the socket shows the end of the process
            reader.process = os.pidfd_open(reader.pid)
            self._selector.register(reader.process, selectors.EVENT_READ, reader)
        self._selector.register(channel, selectors.EVENT_READ)
        self._all[channel.fileno()] = reader

    def _listen_to(self, reader: Reader) -> None:
        """Handle all messages of a receiver: a later one may release the version for which it would be ended."""
        while True:
            try:
                heard = receive(reader.channel)
            except BlockingIOError:
                return
            except (OSError, WeightsError):
                heard = None
            if heard is None:
                self._forget(reader)
                return
            self._handle_message(reader, heard[0])

    def _handle_message(self, reader: Reader, message: WireMessage) -> None:
        if message.kind is WireKind.HELLO:
            reader.name = message.text
        elif message.kind is WireKind.RELEASE and reader.holds is not None and reader.holds.version <= message.version:
            reader.release()
        elif message.kind is WireKind.VERIFIED and message.numbers:
            reader.has_verified(message.version, message.numbers[0])
        reader.advance(self._newest)

    def _watch(self, reader: Reader) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if reader.blocked else 0)
        if self._selector.get_key(reader.channel).events != wanted:
            self._selector.modify(reader.channel, wanted)

    def _forget(self, reader: Reader) -> None:
        del self._all[reader.channel.fileno()]
        for end in (reader.channel, reader.process):
            if end != -1:
                self._selector.unregister(end)
        self._disconnect(reader)

    @staticmethod
    def _disconnect(reader: Reader) -> None:
        reader.channel.close()
        if reader.process >= 0:
            os.close(reader.process)

    def _close_all(self) -> None:
        self._selector.close()
        for reader in self._all.values():
            self._disconnect(reader)
        self._all.clear()
        for end in (self._listener, self._waker, self._woken):
            end.close()
