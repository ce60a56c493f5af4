"""The services of a run whose driver holds them: an event loop in a thread of its own, and the links by which a producer reaches it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcore.contracts.types import Group, Prompt, Rollout
from rlcore.runtime.async_judge import AsyncJudge
from rlcore.runtime.group_store import GroupStore
from rlcore.runtime.producer_loop import Then
from rlcore.runtime.schedule_service import Arrival, ScheduleService

__all__ = ["LocalLinks", "ServiceThread"]

T = TypeVar("T")


class ServiceThread:
    """Runs coroutines of any thread, one step at a time, until ``close``; those that wait then are cancelled."""

    def __init__(self) -> None:
        lives: Future[asyncio.AbstractEventLoop] = Future()
        self._closing = asyncio.Event()
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
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def post(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have a function called there."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def close(self) -> None:
        """Nothing is called any more."""
        self.post(self._closing.set)
        self._thread.join()


@dataclass(frozen=True, slots=True)
class LocalLinks:
    """``LinksLike``, and the judge, for a producer in a thread of the driver's process."""

    services: ServiceThread
    schedule: ScheduleService
    store: GroupStore
    judge: AsyncJudge

    def lease(self, worker: str, k: int, serving: int, then: Then) -> None:
        """``ScheduleService.lease``."""
        self._call(self.schedule.lease(worker, k, serving), then)

    def serving(self, worker: str, version: int) -> None:
        """``ScheduleService.serving``; nobody waits for it."""
        self.services.call(self.schedule.serving(worker, version))

    def deliver(self, worker: str, arrivals: Sequence[Arrival], groups: Sequence[Group], then: Then) -> None:
        """``GroupStore.deliver``."""
        self._call(self.store.deliver(worker, arrivals, groups), then)

    def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Then) -> None:
        """``AsyncJudge.score``."""
        self._call(self.judge.score(prompt, rollouts, counted), then)

    def _call(self, work: Coroutine[Any, Any, Any], then: Then) -> None:
        def answered(future: Future[Any]) -> None:
            if not future.cancelled():  # else the run is over
                error = future.exception()
                then(None if error is not None else future.result(), error)

        self.services.call(work).add_done_callback(answered)
