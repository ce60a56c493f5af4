"""One reward pool a node, shared by its producers: the judge behind an event loop, and the end that a producer holds."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Prompt, Rollout, Score
from rlcore.rewards import Judge, VerdictCounts
from rlcore.runtime.loading import load_data
from rlcore.runtime.mailbox import Mailbox
from rlcore.runtime.parts import make_judge
from rlcore.runtime.shipment import Shipment

__all__ = ["JudgeClient", "JudgeHost"]

_POLL_SECONDS = 1.0
"""The longest that the host's thread waits in one call of the judge; it wakes for every verdict."""


class JudgeHost:
    """Owns a Judge, made at the first call that needs one: also after its process died and was started anew. ``started``: called at every
    start."""

    def __init__(self, shipment: Shipment, *, started: Callable[[], None] = lambda: None) -> None:
        started()
        self._shipment = shipment
        self._made: Judge | None = None
        self._making = asyncio.Lock()
        self._keys = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[Score, ...]]] = {}
        self._error: Exception | None = None
        self._closing = False

    async def check(self) -> tuple[str, ...]:
        """Ask the rewards whether they can judge every row; what they say of this machine. DataError for rows that they cannot judge."""
        judge = await self._judge()
        await asyncio.to_thread(self._check, judge)
        return judge.notices

    def _check(self, judge: Judge) -> None:
        for data_set in load_data(self._shipment.open("the judge")).values():
            judge.check(data_set.prompts)

    async def _judge(self) -> Judge:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(lambda: make_judge(self._shipment.open("the judge")))
                threading.Thread(target=self._collect, args=(self._made, asyncio.get_running_loop()), name="verdicts", daemon=True).start()
            return self._made

    async def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool) -> tuple[Score, ...]:
        """The scores of one group, in the order of its rollouts. Raises what ends a run: RewardBudgetError, RunError."""
        judge = await self._judge()
        if self._error is not None:
            raise self._error
        key = next(self._keys)
        answer: asyncio.Future[tuple[Score, ...]] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        judge.submit(key, prompt, rollouts, counted=counted)
        return await answer

    async def take_judged(self) -> list[VerdictCounts]:
        """``Judge.take_judged``: counts since the last call; [] if this judge never judged."""
        return [self._made.take_judged()] if self._made is not None else []

    async def take_faults(self) -> list[dict[str, Any]]:
        """``Judge.take_faults``: what rewards raised since the last call."""
        return self._made.take_faults() if self._made is not None else []

    async def close(self) -> None:
        """Stop the workers and wait until they are gone."""
        self._closing = True
        async with self._making:
            if self._made is not None:
                await asyncio.to_thread(self._made.close)

    # --- the thread that waits for verdicts --------------------------------------------------------------------------

    def _collect(self, judge: Judge, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            try:
                for key, scores in judge.poll(_POLL_SECONDS):
                    loop.call_soon_threadsafe(self._answer, key, scores)
            except Exception as error:  # whatever it is, everybody who waits must hear of it
                if not self._closing:
                    loop.call_soon_threadsafe(self._fail, error)
                return

    def _answer(self, key: int, scores: tuple[Score, ...]) -> None:
        answer = self._waiting.pop(key)
        if not answer.done():
            answer.set_result(scores)

    def _fail(self, error: Exception) -> None:
        self._error = error
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)


Ask = Callable[[Prompt, Sequence[Rollout], bool, Callable[[Any, BaseException | None], None]], None]
"""Have a group scored; the last argument is called, from any thread, with the scores or with the error."""


class JudgeClient:
    """What a producer holds in place of a Judge. ``submit`` and ``poll`` are for the producer's thread.

    ``poll`` ends early when any mail arrives: new leases must not wait for verdicts.
    """

    def __init__(self, ask: Ask, mail: Mailbox) -> None:
        self._ask = ask
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

        self._ask(prompt, rollouts, counted, answered)

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
