"""One reward pool, shared by producers: the judge behind an event loop, and the end that a producer holds."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Prompt, Rollout, Score
from rlcore.rewards import Judge, VerdictCounts
from rlcore.runtime.mailbox import Mailbox
from rlcore.runtime.workers import Worker, answer

__all__ = ["AsyncJudge", "JudgeClient"]

_POLL_SECONDS = 1.0
"""The longest that the thread waits in one call of the judge; it wakes for every verdict."""


class AsyncJudge:
    """A judge behind an event loop: who waits for scores is parked. A thread takes the verdicts until ``end``."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._keys = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[Score, ...]]] = {}
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._closing = False

    async def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool) -> tuple[Score, ...]:
        """The scores of one group, in the order of its rollouts. Raises what ends a run: RewardBudgetError, RunError."""
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._collect, args=(loop,), name="verdicts", daemon=True)
            self._thread.start()
        key = next(self._keys)
        answer: asyncio.Future[tuple[Score, ...]] = loop.create_future()
        self._waiting[key] = answer
        try:
            self.judge.submit(key, prompt, rollouts, counted=counted)
            return await answer
        finally:
            self._waiting.pop(key, None)

    async def take_judged(self) -> list[VerdictCounts]:
        """``Judge.take_judged``: counts since the last call."""
        return [self.judge.take_judged()]

    async def take_faults(self) -> list[dict[str, Any]]:
        """``Judge.take_faults``: what rewards raised since the last call."""
        return self.judge.take_faults()

    def end(self) -> None:
        """Nothing is judged any more; the judge may be closed from here on."""
        self._closing = True

    def _collect(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            try:
                for key, scores in self.judge.poll(_POLL_SECONDS):
                    loop.call_soon_threadsafe(self._answer, key, scores)
            except Exception as error:  # whatever it is, everybody who waits must hear of it
                if not self._closing:
                    loop.call_soon_threadsafe(self._fail, error)
                return

    def _answer(self, key: int, scores: tuple[Score, ...]) -> None:
        answer = self._waiting.pop(key, None)
        if answer is not None and not answer.done():
            answer.set_result(scores)

    def _fail(self, error: Exception) -> None:
        self._error = error
        waiting, self._waiting = self._waiting, {}
        for parked in waiting.values():
            if not parked.done():
                parked.set_exception(error)


class JudgeClient:
    """What a producer holds in place of a Judge: ``judge`` is the worker of an ``AsyncJudge``. ``submit`` and ``poll`` are for the
    producer's thread.

    ``poll`` ends early when any mail arrives: new leases must not wait for verdicts.
    """

    def __init__(self, judge: Worker, mail: Mailbox) -> None:
        self._judge = judge
        self._mail = mail
        self._lock = threading.Lock()
        self._scored: list[tuple[int, tuple[Score, ...]]] = []
        self._error: BaseException | None = None

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        """Send a group off; never waits."""

        def answered(scores: Any, error: BaseException | None) -> None:
            with self._lock:
                if error is not None:
                    self._error = self._error or error
                else:
                    self._scored.append((key, scores))
            self._mail.nudge()

        answer(self._judge.call("score", prompt, rollouts, counted), answered)

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        """The groups that are scored; [] after ``timeout`` seconds, or where other mail came first."""
        if not (scored := self._taken()) and timeout > 0:
            self._mail.wait(timeout)
            scored = self._taken()
        return scored

    def _taken(self) -> list[tuple[int, tuple[Score, ...]]]:
        with self._lock:
            if self._error is not None:
                raise self._error if isinstance(self._error, Exception) else RunError(str(self._error))
            scored, self._scored = self._scored, []
            return scored
