"""Deliveries from a store to a schedule in another process: one call at a time, with all groups that became ready during the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rlcore.api import RunError
from rlcore.api.runtime import DeliveryStatus, GroupSummary
from rlcore_plugin_workers.schedule_service import DeliveryBatch, DeliveryResult

__all__ = ["DeliveryBatcher"]


class DeliveryBatcher:
    """Batches deliveries. ``deliver`` replaces ``ScheduleService.deliver`` for a ``GroupStore`` in another process. For one event loop.

    If no call is in progress, a delivery is sent at once. Later ones wait for the answer and go into the next call, in the order of their
    arrival. So no delivery waits for a timer, and a slower schedule receives more deliveries a call.
    """

    def __init__(self, send: Callable[[Sequence[DeliveryBatch]], Awaitable[Sequence[DeliveryResult]]]) -> None:
        """``send`` calls ``ScheduleService.deliver_batches``, which may be in another process."""
        self._send = send
        self._waiting: list[tuple[DeliveryBatch, asyncio.Future[list[DeliveryStatus]]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def deliver(self, store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        """Do the same as ``ScheduleService.deliver``. If a call fails, its error is raised only to the callers whose groups were in it."""
        verdicts: asyncio.Future[list[DeliveryStatus]] = asyncio.get_running_loop().create_future()
        self._waiting.append((DeliveryBatch(store=store, worker=worker, arrivals=tuple(arrivals)), verdicts))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await verdicts

    async def _send_all(self) -> None:
        gathered: list[tuple[DeliveryBatch, asyncio.Future[list[DeliveryStatus]]]] = []
        try:
            while self._waiting:
                gathered, self._waiting = self._waiting, []
                for (_, verdicts), result in zip(
                    gathered, await self._sent([delivery_batch for delivery_batch, _ in gathered]), strict=True
                ):
                    if verdicts.done():  # the caller has been cancelled
                        continue
                    if isinstance(result, Exception):
                        verdicts.set_exception(result)
                    else:
                        verdicts.set_result(result)
        finally:
            abandoned, self._waiting, self._sender = [*gathered, *self._waiting], [], None
            for _, verdicts in abandoned:  # these are done, unless this task was cancelled; then no caller must wait for ever
                verdicts.cancel()

    async def _sent(self, delivery_batches: Sequence[DeliveryBatch]) -> Sequence[list[DeliveryStatus] | Exception]:
        """One result for each, whatever becomes of the call: everybody waits for one."""
        try:
            results = await self._send(delivery_batches)
        except Exception as error:
            return [error] * len(delivery_batches)
        if len(results) != len(delivery_batches):
            return [RunError(f"the schedule answered {len(delivery_batches)} deliveries with {len(results)} results")] * len(
                delivery_batches
            )
        return results
