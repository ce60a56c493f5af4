"""The base classes of rewards, which judge rollouts in worker processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.contracts.errors import InfrastructureError
from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import RewardInput, Score

__all__ = ["AsyncReward", "Reward"]


class Reward(FromSpec, ABC, described_by=RewardSpec):
    """A judge of one rollout.

    It runs in a worker process that is killed at the deadline, so it may be plain, synchronous code.
    """

    requires: tuple[str, ...] = ()
    """Columns of the data row that ``score`` reads, as in the spec; a constructor may set others by the options."""

    def open(self) -> None:
        """Prepare the reward. Called once per worker, before the first score."""

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return the reason why this row cannot be judged (an unparseable gold answer), None if it can. Called before training."""
        return None

    def notice(self) -> str:
        """Return one line on how this reward judges on this machine (the level of its sandbox), "" for none.

        rlcore prints the line once at the start.
        """
        return ""

    @abstractmethod
    def score(self, item: RewardInput) -> Score:
        """Return a verdict. A fault of the text is a verdict too; raise only if the reward itself is at fault (outcome ``error``)."""

    def score_group(self, items: Sequence[RewardInput]) -> list[Score]:
        """Return verdicts on all rollouts of one prompt.

        Override this method if rollouts are judged against each other, and set ``group_level``.
        """
        return [self.score(item) for item in items]

    group_level: bool = False

    def close(self) -> None:
        """Free resources. Called once per worker at the end, but not in a worker that was killed."""


class AsyncReward(Reward):
    """A reward that waits for a service, such as a model behind an address.

    It judges many rollouts at once, as coroutines of one event loop.

    The pool runs it in one separate process next to its workers, so the limits apply to the whole node. At the deadline of a rollout its
    coroutine is cancelled. If a coroutine blocks the loop itself, the process is killed, and only the rollout that blocked it is blamed.

    ``open``, ``check`` and ``close`` are called in that process too; ``requires`` and ``notice`` are as for ``Reward``. The limits are
    class attributes; a constructor may set them from options.
    """

    concurrency: int = 16
    """Rollouts in flight at once."""
    retries: int = 3
    """Further attempts after an exception of ``retryable``. All attempts share the deadline."""
    backoff: float = 0.5
    """Seconds before the second attempt. They double with each further attempt, and vary at random by half."""
    rate_limit: float | None = None
    """Attempts started per second; None: limited only by ``concurrency``.

    The wait before the first attempt does not count against the deadline.
    """
    retryable: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, InfrastructureError)
    """Exceptions that are the environment's fault: the attempt is repeated, and after the last one the outcome is ``infra``.

    Any other exception gives the outcome ``error``.
    """

    async def open_async(self) -> None:
        """Prepare the reward, for example create a client that belongs to a loop. Called once, in the loop, before the first score."""

    @abstractmethod
    async def score_async(self, item: RewardInput) -> Score:
        """Return a verdict; see ``Reward.score``. Must not block: await, or use ``asyncio.to_thread``."""

    async def close_async(self) -> None:
        """Free resources. Called once, in the loop, at the end."""

    def score(self, item: RewardInput) -> Score:
        """Judge one rollout in a new event loop, without retries. For tests and other direct use; the engine never calls it."""
        import asyncio  # a tenth of a second, which no worker of another reward should pay

        return asyncio.run(self._alone(item))

    async def _alone(self, item: RewardInput) -> Score:
        await self.open_async()
        try:
            return await self.score_async(item)
        finally:
            await self.close_async()
