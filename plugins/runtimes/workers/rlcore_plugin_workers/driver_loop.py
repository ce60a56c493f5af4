"""The event loop of a run's driver, in its own thread: it works in any thread, and in a notebook, whose thread already has an event loop.

The thread that calls the runtime hands the loop one coroutine at a time and waits (``DriverLoop.run``). Watched coroutines run in parallel
(``DriverLoop.watch``): the first error of one of them ends the wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rlcore.api import RlcoreError, RunError
from rlcore.api.runtime import RuntimeLostError, WorkerLostError
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["DriverLoop", "ServiceWorker", "answered", "first_error", "in_thread", "successful_values"]

T = TypeVar("T")
_F = TypeVar("_F", bound="asyncio.Future[Any]")

_CAUSE_SECONDS = 5.0
"""How long to wait after an error for the death that caused it: a broken connection may be reported before the death."""
_STEP_SECONDS = 5.0
"""How long to wait for the loop, since a step of it may hang in a library call."""
_SIGNAL_SECONDS = 1.0
"""The longest single wait of the calling thread. CPython calls a signal handler between two waits; a signal that arrives just before a wait
does not end it."""
_LOSSES = (RuntimeLostError, WorkerLostError)


class DriverLoop:
    """Runs coroutines from any thread, one step at a time, until ``close``, which cancels the waiting ones."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        """``say`` receives lines in the thread that calls ``run``."""
        self._print = say
        self._news: SimpleQueue[str | Future[Any]] = SimpleQueue()
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._closing = asyncio.Event()
        self._failure: asyncio.Future[Any]
        self._cause: asyncio.Task[BaseException] | None = None
        self._loss: asyncio.Future[BaseException]
        self._raised: BaseException | None = None
        self.suspects: Sequence[Worker] = ()
        """Workers whose silence can cause errors in others, because all others wait for them."""
        lives: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._live, args=(lives,), name="driver", daemon=True)
        self._thread.start()
        self._loop = lives.result()

    def _live(self, lives: Future[asyncio.AbstractEventLoop]) -> None:
        async def live() -> None:
            self._failure = _quiet(asyncio.get_running_loop().create_future())
            lives.set_result(asyncio.get_running_loop())
            await self._closing.wait()

        try:
            asyncio.run(live())
        except BaseException as error:  # for example, no file descriptor is left
            if lives.done():
                raise
            lives.set_exception(error)

    def close(self) -> None:
        """Cancel all waiting coroutines and end the loop."""
        self.soon(self._closing.set)
        self._thread.join(_STEP_SECONDS)

    # --- from any thread ---------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, wait for its value and return it. An error of a watched coroutine ends the wait and is raised here."""
        ended = threading.Event()
        call = self.call(self._attended(work, ended))
        call.add_done_callback(self._news.put)
        try:
            while (news := self._next_news()) is not call:
                if isinstance(news, str):  # else a call that Ctrl-C ended
                    self._print(news)
        except BaseException:  # above all Ctrl-C: the caller abandons the call
            call.cancel()
            ended.wait(_STEP_SECONDS)  # the caller is about to end the workers that the coroutine starts
            raise
        return call.result()

    def _next_news(self) -> str | Future[Any]:
        while True:
            with suppress(Empty):
                return self._news.get(timeout=_SIGNAL_SECONDS)

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine and return its future. Coroutines start in the order of the calls."""
        return asyncio.run_coroutine_threadsafe(self._kept(work), self._loop)

    async def _kept(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine and hold a reference to its task: the event loop holds none while the task waits, so the task could be
        collected."""
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def soon(self, act: Callable[[], object]) -> None:
        """Have ``act`` called in the driver's thread. Signal handlers may call this. Do nothing if the driver is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def say(self, line: str) -> None:
        """Have a line said by the thread that waits in ``run``, or by the next one that does."""
        self._news.put(line)

    # --- in the driver's thread --------------------------------------------------------------------------------------

    def watch(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in parallel with all others. Its error ends the run."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._watched_ended)
        return task

    def _watched_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self._cause is not None and isinstance(error, RlcoreError):
            if isinstance(error, _LOSSES) and not self._loss.done():
                self._loss.set_result(error)
        elif error is not self._raised and not self._failure.done():
            self._failure.set_exception(error)

    async def _attended(self, work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
        """Await a coroutine until a watched one fails. Set ``ended`` when the coroutine is finished or cancelled."""
        task = _quiet(asyncio.create_task(work))
        try:
            await asyncio.wait([task, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if not self._failure.done():
                return await self._without_consequences(task)
            failure, self._failure = self._failure, _quiet(asyncio.get_running_loop().create_future())
            return await failure  # type: ignore[no-any-return]
        finally:
            task.cancel()
            await asyncio.wait([task])
            ended.set()

    async def _without_consequences(self, task: asyncio.Task[T]) -> T:
        """Return the value of the task or raise its error. While the cause of another error is being sought, wait for it and raise it
        instead."""
        error = task.exception()
        if self._cause is not None and (error is None or (isinstance(error, RlcoreError) and not isinstance(error, _LOSSES))):
            self._raised = await asyncio.shield(self._cause)  # the task that seeks the cause raises it too
            raise self._raised
        return task.result()

    async def cause(self, error: BaseException) -> BaseException:
        """Return the death that caused an error, such as a broken connection, if one is reported soon or a suspect does not answer in this
        time. Otherwise return the error. Other errors that arrive meanwhile count as consequences too."""
        if self._cause is None:
            self._loss = asyncio.get_running_loop().create_future()
            self._cause = asyncio.create_task(self._sought(error))
            self._cause.add_done_callback(lambda _: setattr(self, "_cause", None))
        return await asyncio.shield(self._cause)

    async def _sought(self, error: BaseException) -> BaseException:
        asked = [(worker.name, answered(worker.call("lives", beside=True))) for worker in self.suspects]
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._loss, _CAUSE_SECONDS)
        silent = ", ".join(name for name, call in asked if not call.done())
        why = f"{silent} was lost (its process has not answered for {_CAUSE_SECONDS:g} s): {error}"
        return WorkerLostError(why) if silent else error

    async def values(
        self,
        calls: Sequence[Future[Any]],
        failed: Callable[[int, BaseException], Awaitable[BaseException]] | None = None,
        seconds: float | None = None,
    ) -> list[Any]:
        """Return the values of calls, in order. Raise the first error at once, in the form that ``failed(number of the call, error)``
        returns: other ranks would wait for ever. Raise TimeoutError with the numbers of the open calls after ``seconds``."""
        futures = [answered(call) for call in calls]
        limit = asyncio.get_running_loop().time() + seconds if seconds is not None else None
        heard: set[int] = set()
        while len(heard) < len(futures):
            left = None if limit is None else max(0.0, limit - asyncio.get_running_loop().time())
            open_ones = [number for number in range(len(futures)) if number not in heard]
            await asyncio.wait([futures[number] for number in open_ones], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            done = [number for number in open_ones if futures[number].done()]
            if not done:
                raise TimeoutError(*open_ones)
            for number in done:
                if (error := futures[number].exception()) is not None:
                    raise error if failed is None else await failed(number, error)
            heard.update(done)
        return [future.result() for future in futures]


class ServiceWorker(Worker):
    """An object whose methods are coroutines in the driver's loop. They alternate in its thread, whatever ``beside`` says."""

    def __init__(self, driver: DriverLoop, service: Any, name: str) -> None:
        self._driver = driver
        self._service = service
        self.name = name

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """See Worker."""
        return self._driver.call(getattr(self._service, method)(*arguments))

    def kill(self) -> None:
        """Do nothing: the service ends with the driver."""


def answered(call: Future[T]) -> asyncio.Future[T]:
    """Return a future of this loop for a call of a worker. Cancelling the future does not end the call. If the call is cancelled, which
    happens to open calls at the end of a run, the future stays open."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = _quiet(loop.create_future())

    def settle() -> None:
        if answer.done() or call.cancelled():
            return
        error = call.exception()
        if isinstance(error, StopIteration):  # an asyncio future does not accept it
            error = RunError(f"StopIteration: {error}")
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(call.result())

    def arrived(done: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle)

    if call.done():
        settle()
    else:
        call.add_done_callback(arrived)
    return answer


def _quiet(future: _F) -> _F:
    """Return the future. Do not let the loop log its error if nothing reads it: other code reports the error."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def successful_values(calls: Sequence[Future[Any]]) -> list[Any]:
    """Return the values of calls, in order, without those of workers that died. Raise any other error."""
    answers = await asyncio.gather(*map(answered, calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, WorkerDiedError):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def first_error(*works: Awaitable[Any]) -> BaseException:
    """Return the first error of the awaitables and cancel the others. An awaitable that succeeds does not end the wait."""
    tasks: list[asyncio.Future[Any]] = [_quiet(asyncio.ensure_future(work)) for work in works]
    try:
        while True:
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    return error
            open_ones = [task for task in tasks if not task.done()]
            await (asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED) if open_ones else asyncio.Event().wait())
    finally:
        for task in tasks:
            task.cancel()


def in_thread(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Call ``work`` in its own thread and return a future. The end of the loop does not wait for the thread, which may wait for ever."""
    call: Future[T] = Future()

    def run() -> None:
        try:
            call.set_result(work(*arguments))
        except BaseException as error:  # raised by the future
            call.set_exception(error)

    threading.Thread(target=run, name=getattr(work, "__name__", "beside"), daemon=True).start()
    return answered(call)
