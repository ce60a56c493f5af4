"""The two ends of a worker's socket: calls and answers in both directions, and the loop that executes calls in the worker's process.

A frame consists of the length of its head, the head (a pickled tuple of plain values), the pickled content, and the large arrays of the
content. These arrays are read into separate memory and not copied. A Worker in the content is not copied: the other side receives a
RemoteWorker.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple

import cloudpickle
from rlcore_plugin_workers.environments import missing_package
from rlcore_plugin_workers.workers import Worker

from rlcore.api import RlcoreError, RunError
from rlcore.api.runtime import reason

__all__ = ["CallRequest", "Link", "serve"]

_HEAD = struct.Struct("!I")
_APART = 1 << 16
"""The size in bytes from which an array is sent separately from the pickle."""
_ARRIVING = threading.local()


class CallRequest(NamedTuple):
    """An incoming call for the worker ``key``. The thread that executes it unpickles the arguments, because that may import heavy
    modules."""

    number: int
    key: int
    method: str
    beside: bool
    arguments: Callable[[], Any]


class Link:
    """One end of the socket. ``name``: the worker on this side. ``take`` receives each call, in the order of the calls, in the listening
    thread.

    If ``queued``, messages wait in a queue, so that a peer that does not read blocks no caller; else the caller waits.
    """

    def __init__(self, channel: socket.socket, name: str, take: Callable[[CallRequest], None], *, queued: bool) -> None:
        self._channel, self._name, self._take = channel, name, take
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._numbers = count()
        self._pending: dict[int, Future[Any]] = {}
        self.handed: list[Worker] = []
        """The workers of this side that the other side knows. Their index in this list is their key."""
        self._ended: Callable[[], BaseException] | None = None
        self._outbox: SimpleQueue[list[Any]] | None = SimpleQueue() if queued else None
        if self._outbox is not None:
            threading.Thread(target=self._send_queued, name=f"{name} sends", daemon=True).start()

    def call(self, key: int, method: str, arguments: tuple[Any, ...], *, beside: bool = False) -> Future[Any]:
        """Call a method of the other side's worker ``key``. An array among the arguments must not change before the answer arrives."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # it cannot be cancelled, because the other side would not learn of it
        content = self._packed(arguments)
        with self._lock:
            if self._ended is not None:
                future.set_exception(self._ended())
                return future
            number = next(self._numbers)
            self._pending[number] = future
        self._put((number, key, method, beside), content)
        return future

    def answer(self, request: CallRequest, value: Any, error: BaseException | None) -> None:
        """Send the value or the error of a call."""
        try:
            content = self._packed((value, *portable(error, self._name)))
        except Exception as unfit:
            content = self._packed((None, RunError(f"{self._name} cannot send what {request.method}() returned: {reason(unfit)}"), None))
        self._put((request.number, None, "", False), content)

    def listen(self) -> None:
        """Read until the other side closes. Pass calls to ``take``, and answers to the futures of their calls."""
        with self._channel.makefile("rb") as stream:
            while (frame := self._frame(stream)) is not None:
                (number, key, method, beside), content = frame
                if key is not None:
                    self._take(CallRequest(number, key, method, beside, content))
                    continue
                try:
                    value, error, trace = content()
                except Exception as unfit:
                    value, error, trace = None, RunError(f"the answer to a call of {self._name} cannot be read: {reason(unfit)}"), None
                with self._lock:
                    future = self._pending.pop(number)
                if error is None:
                    future.set_result(value)
                else:
                    error.__cause__ = trace
                    future.set_exception(error)

    def end(self, error: Callable[[], BaseException]) -> None:
        """Let ``error()`` be raised by all open calls and all later ones."""
        with self._lock:
            self._ended, pending, self._pending = error, self._pending, {}
        if self._outbox is not None:
            self._outbox.put([])
        for future in pending.values():
            future.set_exception(error())

    def hand(self, worker: Worker) -> tuple[int, str]:
        """Return the key by which the other side calls this worker, and its name."""
        with self._lock:
            if worker not in self.handed:
                self.handed.append(worker)
            return self.handed.index(worker), worker.name

    def _packed(self, content: Any) -> list[Any]:
        file, apart = io.BytesIO(), list[Any]()

        def stays(buffer: pickle.PickleBuffer) -> bool:
            if len(raw := buffer.raw()) >= _APART:
                apart.append(raw)
            return len(raw) < _APART

        pickler = _LinkPickler(file, protocol=5, buffer_callback=stays)
        pickler.link = self
        pickler.dump(content)
        return [file.getbuffer(), *apart]

    def _put(self, meaning: tuple[int, int | None, str, bool], content: list[Any]) -> None:
        head = pickle.dumps((meaning, [part.nbytes for part in content]))
        frame = [b"".join((_HEAD.pack(len(head)), head, content[0])), *content[1:]]
        if self._outbox is not None:
            self._outbox.put(frame)
        else:
            self._send(frame)

    def _send(self, frame: list[Any]) -> None:
        with self._sending:
            for part in frame:
                self._channel.sendall(part)

    def _send_queued(self) -> None:
        assert self._outbox is not None
        try:
            while frame := self._outbox.get():
                self._send(frame)
        except OSError:  # the peer is gone; the thread that waits for its end reports it
            return

    def _frame(self, stream: io.BufferedReader) -> tuple[Any, Callable[[], Any]] | None:
        """Return the meaning of the next frame, and a function that unpickles its content. Return None if the peer has closed, or died
        while it sent a frame."""
        try:
            if len(first := stream.read(_HEAD.size)) < _HEAD.size:
                return None
            meaning, sizes = pickle.loads(stream.read(_HEAD.unpack(first)[0]))
            parts = [bytearray(size) for size in sizes]
            whole = [stream.readinto(part) for part in parts] == sizes
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return (meaning, lambda: self._unpacked(parts)) if whole else None

    def _unpacked(self, parts: list[bytearray]) -> Any:
        _ARRIVING.link = self
        return pickle.loads(parts[0], buffers=parts[1:])


class _LinkPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a Worker as its key."""

    link: Link

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object; pickle calls this for every object that is not of a simple type."""
        if isinstance(obj, RemoteWorker) and obj.link is self.link:
            return _back, (obj.key,)
        return (_remote, self.link.hand(obj)) if isinstance(obj, Worker) else super().reducer_override(obj)


class RemoteWorker(Worker):
    """A worker on the other side of the link."""

    def __init__(self, link: Link, key: int, name: str) -> None:
        self.link, self.key, self.name = link, key, name

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """Call the worker on its side."""
        return self.link.call(self.key, method, arguments, beside=beside)

    def kill(self) -> None:
        """Raise RunError: only the process that started the worker ends it."""
        raise RunError(f"{self.name} was started by the driver, and only the driver can end it")


def _back(key: int) -> Worker:
    link: Link = _ARRIVING.link
    return link.handed[key]


def _remote(key: int, name: str) -> Worker:
    return RemoteWorker(_ARRIVING.link, key, name)


class ForeignError(Exception):
    """The trace of an error in a worker whose cause is not an error of rlcore: the user sees it."""


def portable(error: BaseException | None, name: str) -> tuple[Exception | None, Exception | None]:
    """Return an error in a form that can be sent, and its cause, whose text is the trace. An error that is not an Exception or cannot be
    pickled becomes a RunError with its text."""
    if error is None:
        return None, None
    own = error.__cause__ is None or isinstance(error.__cause__, RlcoreError)
    trace = (RunError if own else ForeignError)(f"raised in {name}:\n{''.join(traceback.format_exception(error))}")
    if (lacking := missing_package(error, name)) is not None:
        return lacking, trace
    with suppress(Exception):
        if isinstance(error, Exception) and type(pickle.loads(cloudpickle.dumps(error))) is type(error):
            return error, trace
    return RunError(f"{name}: {reason(error)}"), trace


def serve(descriptor: int, name: str, calls: int) -> None:
    """Create the host object that the first call describes, and execute the other calls, ``calls`` at a time, until the driver is gone.
    Never return.

    The main thread creates the object and also executes calls, because some libraries require it.
    """
    queue: SimpleQueue[CallRequest] = SimpleQueue()
    made: Future[Any] = Future()

    def take(request: CallRequest) -> None:
        if request.beside:
            threading.Thread(target=execute, args=(request,), name=request.method, daemon=True).start()
        else:
            queue.put(request)

    def execute(request: CallRequest) -> None:
        try:
            value, error = getattr(made.result(), request.method)(*request.arguments()), None
        except BaseException as raised:  # the driver must receive any error of a plugin
            value, error = None, raised
        link.answer(request, value, error)

    def work() -> None:
        while True:
            execute(queue.get())

    def listen() -> None:
        link.listen()
        os.killpg(0, signal.SIGKILL)  # the driver is gone, so end this process and its children

    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    link = Link(channel, name, take, queued=False)
    threading.Thread(target=listen, name="listens", daemon=True).start()
    try:
        host, *arguments = queue.get().arguments()
        made.set_result(host(*arguments))
    except BaseException as error:
        made.set_exception(error)
    for _ in range(calls - 1):
        threading.Thread(target=work, daemon=True).start()
    work()
