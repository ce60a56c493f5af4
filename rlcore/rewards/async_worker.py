"""The event loop of a worker that hosts one asynchronous reward: concurrent items with retries, a rate limit and soft deadlines.

A blocked loop cannot be ended from inside, so the pool does that. The panel tells the pool whether the loop makes progress and which task
is running on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import pickle
import random
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.rewards.reward_entry import RewardRecipe
from rlcore.rewards.worker_protocol import Call, Done, FrameReader, LoopStatus, Ready, Task, encode, end_fork
from rlcore.rewards.worker_results import accident, broken, checked, describe, failed, first_complaint

__all__ = ["BEAT_SECONDS", "AsyncWorker", "RateLimiter"]

BEAT_SECONDS = 0.25
_GRACE = 1.0  # for a cancelled call to end; if it does not, the process is replaced
_LONGEST_BACKOFF = 60.0
_T = TypeVar("_T")
_ITEM: contextvars.ContextVar[int | None] = contextvars.ContextVar("rlcore_item", default=None)


class AsyncWorker:
    """Serves the socket ``channel`` with one reward until the other side closes it. ``worn(count)`` tells whether to be replaced."""

    def __init__(
        self, channel: socket.socket, reward: Reward, recipe: RewardRecipe, panel: LoopStatus, worn: Callable[[int], bool]
    ) -> None:
        if not isinstance(reward, AsyncReward):
            raise TypeError(f"reward {recipe.name} is not asynchronous here, but is on the driver")
        self._channel, self._reward, self._recipe, self._panel, self._worn = channel, reward, recipe, panel, worn
        self._pace = RateLimiter(reward.rate_limit)
        self._running: set[asyncio.Task[None]] = set()
        self._count = 0
        self._stuck = False

    def run(self) -> None:
        """Serve until asked to stop, or until the pool is gone.

        All calls in flight share the loop. A call that stops the loop or exits the process does not end it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it would raise at an arbitrary point of the loop
            signal.signal(signal.SIGINT, lambda *_: None)
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            serving = _KeptTask(self._serve(), None, loop=loop)
            serving.add_done_callback(lambda _: loop.stop())
            while not serving.done():
                with contextlib.suppress(SystemExit, KeyboardInterrupt):  # raised by a callback; an exception of a call stays in its task
                    loop.run_forever()
            serving.result()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._task)
        me = os.getpid()
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        beating = _KeptTask(self._beat(), None, loop=loop)
        try:
            await self._reward.open_async()
            # asyncio.to_thread would otherwise use few threads per core, and a cancelled call keeps its thread until it returns.
            loop.set_default_executor(ThreadPoolExecutor(2 * self._reward.concurrency, "rlcore-judge"))
            traits = self._recipe.traits(self._reward, notice=self._reward.notice())
            end_fork(me)
        except BaseException as error:  # reported to the user by the parent
            end_fork(me)
            self._writer.write(encode(broken(self._recipe.name, error)))
            await self._writer.drain()
            os._exit(1)
        self._writer.write(encode(Ready(traits=(traits,))))
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            for job in frames.feed(data):
                if job is None:
                    await self._reward.close_async()
                    beating.cancel()
                    return
                for task_id, payload in job:
                    self._start(task_id, payload)
        os._exit(0)  # the pool is gone

    def _start(self, task_id: int, payload: bytes) -> None:
        context = contextvars.copy_context()
        context.run(_ITEM.set, task_id)
        task = context.run(self._kept, self._one(task_id, payload), task_id)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        """Create tasks for the loop. Every task that an item starts is tied to the item."""
        context = more.get("context")
        task_id = context.get(_ITEM) if context is not None else _ITEM.get()
        return asyncio.Task(coroutine if task_id is None else _Watched(coroutine, task_id, self._panel), loop=loop, **more)

    def _kept(self, coroutine: Coroutine[Any, Any, _T], task_id: int) -> asyncio.Task[_T]:
        """Return a task that belongs to the item and that no other item can cancel."""
        return _KeptTask(_Watched(coroutine, task_id, self._panel), task_id, loop=asyncio.get_running_loop())

    async def _beat(self) -> None:
        while True:
            self._panel.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def _one(self, task_id: int, payload: bytes) -> None:
        try:
            task: Task = pickle.loads(payload)
            done = self._check(task) if task.call is Call.CHECK else await self._score(task)
        except BaseException as error:  # a plugin may raise anything
            done = accident(task_id, 1, error, 0.0)
        self._count += 1
        retire = self._stuck or self._worn(self._count)
        self._writer.write(encode(replace(done, retire=retire)))

    def _check(self, task: Task) -> Done:
        started = time.perf_counter()
        complaint = first_complaint(self._reward, task.items)
        return Done(task_id=task.task_id, complaint=complaint, seconds=time.perf_counter() - started)

    async def _score(self, task: Task) -> Done:
        await self._pace.turn()
        started = time.perf_counter()
        attempts = _Attempts(self._reward, self._pace)
        call = self._kept(attempts.score(task.items[0]), task.task_id)
        await asyncio.wait({call}, timeout=task.deadline)
        seconds = time.perf_counter() - started
        if not call.done():
            call.cancel()
            await asyncio.wait({call}, timeout=_GRACE)
            self._stuck = self._stuck or not call.done()
            reason = f"no verdict within {task.deadline:g} s{attempts.last}"
            return failed(task.task_id, 1, Outcome.TIMEOUT, reason, seconds, again=True)
        try:
            return Done(task_id=task.task_id, scores=(call.result(),), seconds=seconds)
        except self._reward.retryable as error:
            # One retry by rlcore if the reward had none of its own.
            reason = f"{describe(error)}{attempts.counted}"
            return failed(task.task_id, 1, Outcome.INFRA, reason, seconds, again=attempts.number == 1)
        except BaseException as error:  # including CancelledError, which is not an Exception
            return accident(task.task_id, 1, error, seconds)


class _KeptTask(asyncio.Task[_T]):
    """A task of one item, or of none, that other items cannot cancel. Some libraries end all tasks of a loop that they take for their
    own."""

    def __init__(self, coroutine: Coroutine[Any, Any, _T], task_id: int | None, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(coroutine, loop=loop)
        self._task_id = task_id

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task as usual; return False if another item asks."""
        return _ITEM.get() in (None, self._task_id) and super().cancel(msg)


class _Attempts:
    """The attempts at one item. ``last`` and ``counted`` describe them in a reason."""

    def __init__(self, reward: AsyncReward, pace: RateLimiter) -> None:
        self._reward, self._pace = reward, pace
        self.number = 0
        self.last = ""

    @property
    def counted(self) -> str:
        return f", after {self.number} attempts" if self.number > 1 else ""

    async def score(self, item: RewardInput) -> Score:
        while True:
            self.number += 1
            try:
                return checked(await self._reward.score_async(item), item)
            except self._reward.retryable as error:
                self.last = f" (attempt {self.number}: {describe(error)})"
                if self.number > self._reward.retries:
                    raise
            except (SystemExit, KeyboardInterrupt) as error:  # raised in a thread: a loop does not treat it as an error of its task
                raise RuntimeError(f"the reward raised {describe(error)}") from error
            await asyncio.sleep(min(_LONGEST_BACKOFF, self._reward.backoff * 2 ** (self.number - 1)) * random.uniform(0.5, 1.5))
            await self._pace.turn()


class RateLimiter:
    """A rate limit of ``rate`` starts per second, evenly spaced; None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1.0 / rate if rate else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next free slot."""
        now = time.monotonic()
        place = max(now, self._next)
        self._next = place + self._gap
        if place > now:
            await asyncio.sleep(place - now)


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine that records its item on the panel whenever it runs on the loop."""

    def __init__(self, inner: Coroutine[Any, Any, Any], task_id: int, panel: LoopStatus) -> None:
        self._inner, self._task_id, self._panel = inner, task_id, panel
        self._me = os.getpid()

    def send(self, value: Any) -> Any:
        return self._watched(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._watched(self._inner.throw, *error)

    def _watched(self, go_on: Callable[..., Any], *given: Any) -> Any:
        self._panel.enter(self._task_id)
        try:
            return go_on(*given)
        except (SystemExit, KeyboardInterrupt) as error:  # it would end the loop, and all calls in flight
            raise RuntimeError(f"the reward raised {describe(error)}") from error
        finally:
            end_fork(self._me)
            self._panel.enter(None)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()
