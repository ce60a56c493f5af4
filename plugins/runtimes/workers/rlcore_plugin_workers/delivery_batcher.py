"""What a store tells a schedule in another process: one call at a time, and in it all that has become ready meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rlcore.api import RunError
from rlcore.api.runtime import DeliveryStatus, GroupSummary
from rlcore_plugin_workers.schedule_service import DeliveryBatch, DeliveryResult

__all__ = ["DeliveryBatcher"]


class DeliveryBatcher:
    """``deliver`` is a ``ScheduleService.deliver`` for a ``GroupStore`` in another process than the schedule. For one event loop.

    A delivery goes at once if no call is under way. What comes while one is waits for its answer, and goes in the next call, in the order
    in which it came: no delivery waits for a clock, and the slower the schedule answers, the more a call brings it.
    """

    def __init__(self, send: Callable[[Sequence[DeliveryBatch]], Awaitable[Sequence[DeliveryResult]]]) -> None:
        """``send``: ``ScheduleService.deliver_batches``, wherever it is."""
        self._send = send
        self._waiting: list[tuple[DeliveryBatch, asyncio.Future[list[DeliveryStatus]]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def deliver(self, store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        """``ScheduleService.deliver``. The error of a call is raised to everybody whose groups were in it, and to nobody else."""
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
                    if verdicts.done():  # whoever asked is gone
                        continue
                    if isinstance(result, Exception):
                        verdicts.set_exception(result)
                    else:
                        verdicts.set_result(result)
        finally:
            abandoned, self._waiting, self._sender = [*gathered, *self._waiting], [], None
            for _, verdicts in abandoned:  # done, unless this task was cancelled: then nobody must wait for ever
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
