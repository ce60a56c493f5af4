"""The interfaces of launchers and workers: a launcher starts workers, the runtime calls them, and a worker can die at any time.

The launcher decides what a worker is: an object in a thread of this process, a process of this machine, or an actor of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import RunError

__all__ = ["DoneCallback", "Launcher", "Placement", "Worker", "WorkerDiedError", "answer"]

DoneCallback = Callable[[Any, BaseException | None], None]
"""A callback, called once from any thread with the value of a call or with its error."""


class WorkerDiedError(RunError):
    """The process of a worker has died, and its open calls have failed.

    ``name`` is the name of the worker. The message says in a few words how it died. ``details`` has more about the death, or is "".
    """

    def __init__(self, name: str, how: str, details: str = "") -> None:
        super().__init__(how)
        self.name = name
        self.details = details

    def __reduce__(self) -> tuple[type[WorkerDiedError], tuple[str, str, str]]:
        return type(self), (self.name, str(self), self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The resources of one worker.

    ``calls`` is the number of calls that may run at the same time. ``threads`` is the number of threads for numerical libraries.
    ``devices`` are the devices that the worker may see (None: all devices of this process). ``environment`` is the environment whose Python
    runs the worker (None: the driver's). Only the launcher reads ``place``.
    """

    calls: int = 1
    threads: int = 1
    devices: str | None = None
    environment: Path | None = None
    place: Any = None


class Worker(ABC):
    """A remote object whose methods are called with ``call``. It can be passed to another worker of the same launcher, which can then call
    it."""

    name: str

    @abstractmethod
    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """Start a call and return its future, which has the value, or raises the method's error or WorkerDiedError.

        Calls begin in the order in which they were made, at most as many at a time as the ``calls`` of the placement. ``beside`` runs the
        call in its own thread, in parallel with all others: for calls that never return, or that must not wait behind a long one.
        """

    @abstractmethod
    def kill(self) -> None:
        """Kill the worker's whole process tree; return when it is gone. Do nothing if it is gone already."""


class Launcher(ABC):
    """Starts workers, and kills the remaining ones when it is closed."""

    @abstractmethod
    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> Worker:
        """Create ``host(*arguments)`` in a worker; return at once. If the constructor raises an error, every call raises it."""

    @abstractmethod
    def close(self) -> None:
        """Kill every remaining worker."""


def answer(call: Future[Any], then: DoneCallback) -> None:
    """Have ``then`` called with the value or the error of a call. A cancelled call does not call it; calls that are open at the end of a
    run are cancelled."""

    def answered(done: Future[Any]) -> None:
        if not done.cancelled():
            error = done.exception()
            then(None if error is not None else done.result(), error)

    call.add_done_callback(answered)
