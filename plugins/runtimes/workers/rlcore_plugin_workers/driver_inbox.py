"""Where the driver waits: for answers of workers, for their deaths, for Ctrl-C. One queue, one thread that reads it, no polling."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from rlcore.api import RlcoreError
from rlcore.api.runtime import RuntimeLostError, WorkerLostError
from rlcore_plugin_workers.workers import Then, Worker, WorkerDiedError, answer

__all__ = ["DriverInbox"]

_Event = Callable[[], object]

_CAUSE_SECONDS = 5.0
"""How long after an error the death that caused it is waited for: it may be reported later than a connection that it broke."""


class DriverInbox:
    """Events are functions; they run in the thread that waits, and what they raise ends the wait."""

    def __init__(self) -> None:
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._timers: list[tuple[float, int, _Event]] = []
        self._timed = itertools.count()
        self._seeking = False
        self.suspects: Sequence[Worker] = ()
        """Workers whose silence is the cause of errors that others raise: those that everybody waits for."""

    def post(self, event: _Event) -> None:
        """Have ``event`` run at the next wait; from any thread, and from a signal handler."""
        self._events.put(event)

    def after(self, seconds: float, event: _Event) -> None:
        """Have ``event`` run at the first wait that is under way once so many seconds have passed. For the thread that waits."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timed), event))

    def watch(self, call: Future[Any], then: Then) -> None:
        """Have ``then(value, error)`` run in the waiting thread once a call of a worker is answered."""
        answer(call, lambda value, error: self._events.put(lambda: then(value, error)))

    def wait(
        self,
        calls: Sequence[Future[Any]],
        failed: Callable[[int, BaseException], BaseException] | None = None,
        seconds: float | None = None,
    ) -> list[Any]:
        """The values of calls, in order. The first error is raised at once, as ``failed(which, error)`` words it: on ranks, the
        others would wait for ever. TimeoutError, with the numbers of the calls that are open, after ``seconds``."""

        def check(number: int, error: BaseException) -> None:
            raise failed(number, error) if failed is not None else error

        return [value for value, _ in self._answers(calls, check, seconds)]

    def survivors(self, calls: Sequence[Future[Any]]) -> list[Any]:
        """The values of calls, in order, without those of workers that died; any other error is raised."""

        def check(number: int, error: BaseException) -> None:
            if not isinstance(error, WorkerDiedError):
                raise error

        return [value for value, error in self._answers(calls, check) if error is None]

    def _answers(
        self, calls: Sequence[Future[Any]], check: Callable[[int, BaseException], None], seconds: float | None = None
    ) -> list[tuple[Any, BaseException | None]]:
        answers: dict[int, tuple[Any, BaseException | None]] = {}

        def arrived(number: int, value: Any, error: BaseException | None) -> None:
            if error is not None:
                check(number, error)
            answers[number] = value, error

        for number, call in enumerate(calls):
            self.watch(call, partial(arrived, number))
        if not self.until(lambda: len(answers) == len(calls), seconds):
            raise TimeoutError(*(number for number in range(len(calls)) if number not in answers))
        return [answers[number] for number in range(len(calls))]

    def cause(self, error: BaseException) -> BaseException:
        """The death behind an error that may be only its consequence (a connection that broke), where one is reported soon, or a suspect
        does not answer until then; else the error. Other errors that arrive meanwhile are consequences too."""
        if self._seeking:
            return error
        self._seeking = True
        asked = [(worker.name, worker.call("lives", beside=True)) for worker in self.suspects]
        deadline = time.monotonic() + _CAUSE_SECONDS
        try:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    self.until(lambda: False, left)
                except (RuntimeLostError, WorkerLostError) as lost:
                    return lost
                except RlcoreError:
                    continue
            silent = ", ".join(name for name, call in asked if not call.done())
            why = f"{silent} was lost (its process has not answered for {_CAUSE_SECONDS:g} s): {error}"
            return WorkerLostError(why) if silent else error
        finally:
            self._seeking = False

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Run events until ``done()``; False where ``seconds`` passed before."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not done():
            due = self._timers[0][0] if self._timers else None
            end = min((moment for moment in (deadline, due) if moment is not None), default=None)
            try:
                event = self._events.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
            except Empty:
                if end != due:
                    return False
                event = heapq.heappop(self._timers)[2]
            event()
        return True

    def drain(self) -> None:
        """Run what has arrived; does not wait."""
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()
