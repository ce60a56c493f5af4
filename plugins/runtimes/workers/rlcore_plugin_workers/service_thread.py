"""The services of a run whose driver holds them: objects behind an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from rlcore_plugin_workers.workers import Worker

__all__ = ["ServiceThread", "ServiceWorker"]

T = TypeVar("T")


class ServiceThread:
    """Runs coroutines of any thread, one step at a time, until ``close``; those that wait then are cancelled."""

    def __init__(self) -> None:
        lives: Future[asyncio.AbstractEventLoop] = Future()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._thread = threading.Thread(target=self._run, args=(lives,), name="services", daemon=True)
        self._thread.start()
        self._loop = lives.result()

    def _run(self, lives: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            asyncio.run(self._live(lives))
        except OSError as error:  # no descriptor is left for a loop
            lives.set_exception(error)

    async def _live(self, lives: Future[asyncio.AbstractEventLoop]) -> None:
        lives.set_result(asyncio.get_running_loop())
        await self._closing.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have it run there; calls begin in the order in which they were made."""
        return asyncio.run_coroutine_threadsafe(self._kept(work), self._loop)

    async def _kept(self, work: Coroutine[Any, Any, T]) -> T:
        """Await it, with a reference to its task: the event loop has none to one that waits, and may lose it."""
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def close(self) -> None:
        """Nothing is called any more."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()


class ServiceWorker(Worker):
    """An object behind the event loop of a ServiceThread, whose methods are coroutines; they run in turns, whatever ``beside`` says."""

    def __init__(self, services: ServiceThread, service: Any, name: str) -> None:
        self._services = services
        self._service = service
        self.name = name

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """See Worker."""
        return self._services.call(getattr(self._service, method)(*arguments))

    def kill(self) -> None:
        """It ends with the thread."""
