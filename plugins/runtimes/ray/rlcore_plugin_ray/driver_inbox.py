"""Where the driver waits: for answers of actors, for their deaths, for Ctrl-C. One queue, one thread that reads it, no polling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from rlcore.api import RlcoreError
from rlcore.api.runtime import WorkerLostError
from rlcore_plugin_ray.remote import Answered, answer, is_death

__all__ = ["DriverInbox"]

_Event = Callable[[], None]

_CAUSE_SECONDS = 5.0
"""How long after an error the death that caused it is waited for: Ray reports it later than a broken connection does."""


class DriverInbox:
    """Events are functions; they run in the thread that waits, and what they raise ends the wait."""

    def __init__(self) -> None:
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._seeking = False

    def post(self, event: _Event) -> None:
        """Have ``event`` run at the next wait; from any thread, and from a signal handler."""
        self._events.put(event)

    def after(self, seconds: float, event: _Event) -> None:
        """Have ``event`` run once so many seconds have passed, where somebody waits then."""
        timer = threading.Timer(seconds, lambda: self._events.put(event))
        timer.daemon = True
        timer.start()

    def watch(self, ref: Any, then: Answered) -> None:
        """Have ``then(value, error)`` run in the waiting thread once a remote call is answered."""
        answer(ref, lambda value, error: self._events.put(lambda: then(value, error)))

    def wait(self, refs: Sequence[Any], failed: Callable[[int, BaseException], BaseException] | None = None) -> list[Any]:
        """The values of remote calls, in order. The first error is raised at once, as ``failed(which, error)`` words it: on ranks, the
        others would wait for ever."""
        values: dict[int, Any] = {}

        def arrived(number: int, value: Any, error: BaseException | None) -> None:
            if error is not None:
                raise failed(number, error) if failed is not None else error
            values[number] = value

        for number, ref in enumerate(refs):
            self.watch(ref, partial(arrived, number))
        self.until(lambda: len(values) == len(refs))
        return [values[number] for number in range(len(refs))]

    def survivors(self, refs: Sequence[Any]) -> list[Any]:
        """The values of remote calls, in order, without those of actors that died; any other error is raised."""
        answers: dict[int, tuple[Any, BaseException | None]] = {}

        def arrived(number: int, value: Any, error: BaseException | None) -> None:
            answers[number] = value, error

        for number, ref in enumerate(refs):
            self.watch(ref, partial(arrived, number))
        self.until(lambda: len(answers) == len(refs))
        for _, error in answers.values():
            if error is not None and not is_death(error):
                raise error
        return [answers[number][0] for number in range(len(refs)) if answers[number][1] is None]

    def cause(self, error: BaseException) -> BaseException:
        """The death behind an error that may be only its consequence (a connection that broke), where one is reported soon; else the error.
        Other errors that arrive meanwhile are consequences too."""
        if self._seeking:
            return error
        self._seeking = True
        deadline = time.monotonic() + _CAUSE_SECONDS
        try:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    self.until(lambda: False, left)
                except WorkerLostError as lost:
                    return lost
                except RlcoreError:
                    continue
            return error
        finally:
            self._seeking = False

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Run events until ``done()``; False where ``seconds`` passed before."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not done():
            try:
                event = self._events.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except Empty:
                return False
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
