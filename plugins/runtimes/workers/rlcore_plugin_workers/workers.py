"""What a crew knows of the processes that it works with: a launcher starts them, a worker is called, and may die at any time.

A launcher decides what a worker is: an object in a thread of this process, a process of this machine, an actor of a cluster.
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
"""Called once, from any thread, with the value of a call or with its error."""


class WorkerDiedError(RunError):
    """The process of a worker is gone, and with it the answers to its calls. ``name``: of the worker; the message says how it died, in a
    few words; ``details``: what else is known of that, "" for nothing."""

    def __init__(self, name: str, how: str, details: str = "") -> None:
        super().__init__(how)
        self.name = name
        self.details = details

    def __reduce__(self) -> tuple[type[WorkerDiedError], tuple[str, str, str]]:
        return type(self), (self.name, str(self), self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a worker gets: ``calls`` that may run at the same time, ``threads`` for its numerical libraries, ``devices`` that it may see
    (None: all of this process), the ``environment`` whose Python it runs in (None: the driver's), and ``place``, which its launcher alone
    reads."""

    calls: int = 1
    threads: int = 1
    devices: str | None = None
    environment: Path | None = None
    place: Any = None


class Worker(ABC):
    """A host object somewhere: ``call`` its methods. It can be handed to another worker of the same launcher, which may call it then."""

    name: str

    @abstractmethod
    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """Start a call; the future has its value, or raises what the method raised, or WorkerDiedError.

        Calls begin in the order in which they were made, as many at a time as the placement has ``calls``. ``beside``: in a thread of
        its own, whatever else runs: for calls that never return, or that must not wait behind a long one.
        """

    @abstractmethod
    def kill(self) -> None:
        """End its whole process tree now; returns once it is gone. Does nothing if it is gone already."""


class Launcher(ABC):
    """Starts workers, and ends those that are left when it is closed."""

    @abstractmethod
    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> Worker:
        """Make ``host(*arguments)`` in a worker; returns at once. What its constructor raises, every call raises."""

    @abstractmethod
    def close(self) -> None:
        """Kill every worker that is left."""


def answer(call: Future[Any], then: DoneCallback) -> None:
    """Have ``then`` called with what comes of a call; not at all if it is cancelled, as those that are open at the end of a run."""

    def answered(done: Future[Any]) -> None:
        if not done.cancelled():
            error = done.exception()
            then(None if error is not None else done.result(), error)

    call.add_done_callback(answered)
