"""A Ray actor as a worker: calls return at once, errors are those that the actor raised, and a death has a one-sentence message."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from textwrap import shorten
from typing import Any

from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    OwnerDiedError,
    RayActorError,
    RayTaskError,
)
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

from rlcore.api.runtime import WorkerLostError

__all__ = ["BESIDE", "RayService", "RayStore", "RayWorker", "is_out_of_memory", "raised", "short_reason"]

BESIDE = "beside"
"""The concurrency group of calls that run in parallel with all others."""
_GIST = 300
_LESS_MEMORY = "lower -tmbs, -imbs or --tokens-per-forward, or end other programs there"


class RayWorker(Worker):
    """A Ray actor as a worker. ``end`` kills the actor; it is None for services, and for workers that were passed to another process."""

    def __init__(self, actor: Any, name: str, end: Callable[[Any], None] | None = None) -> None:
        self.actor = actor
        self.name = name
        self._end = end

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.actor, self.name)

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        called = getattr(self.actor, method)
        return self._answer((called.options(concurrency_group=BESIDE) if beside else called).remote(*arguments))

    def _answer(self, ref: Any, read: Callable[[Any], Any] = lambda value: value) -> Future[Any]:
        answer: Future[Any] = Future()

        def answered(future: Future[Any]) -> None:
            error = future.exception()
            if error is not None:
                answer.set_exception(raised(error, self.name))
            else:
                answer.set_result(read(future.result()))

        ref.future().add_done_callback(answered)
        return answer

    def kill(self) -> None:
        if self._end is not None:
            self._end(self.actor)


class RayService(RayWorker):
    """A service with an event loop, in which no call waits for another one, whatever ``beside`` says."""

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        return super().call(method, *arguments)


class RayStore(RayService):
    """A group store. The groups that it reads stay in Ray's object store, and the ranks receive a reference."""

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        if method not in ("read", "outlines"):
            return super().call(method, *arguments)
        missing, groups = getattr(self.actor, method).options(num_returns=2).remote(*arguments)
        return self._answer(missing, lambda leases: (leases, groups))


def raised(error: BaseException, name: str) -> BaseException:
    """Return the error that the actor raised, without Ray's wrapper. Return the death of worker ``name`` as WorkerDiedError."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    if isinstance(error, ObjectLostError) and not isinstance(error, OwnerDiedError):
        return WorkerLostError(f"a node died while {name} read its groups, and the current batch is lost with it")
    if is_out_of_memory(error):
        return WorkerDiedError(name, short_reason(error))
    if isinstance(error, RayActorError | ActorUnschedulableError | NodeDiedError | OwnerDiedError):
        return WorkerDiedError(name, f"the process of {name} died", short_reason(error))
    return error


def short_reason(error: BaseException) -> str:
    """Return the error's message as one line of limited length."""
    if is_out_of_memory(error):  # Ray's own text has a hundred lines
        used = re.search(r"was ([\d.]+GB used / [\d.]+GB)", str(error))
        held = f", {used[1]}" if used else ""
        return f"Ray killed its process because its node ran out of memory{held}; {_LESS_MEMORY}"
    return shorten(str(error), _GIST, placeholder=" …")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Ray killed an actor because its node ran out of memory."""
    return isinstance(error, OutOfMemoryError) or (isinstance(error, RayActorError) and "node running low on memory" in str(error))
