"""What a store tells a schedule in another process: one call at a time, and in it all that has become ready meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rlcore.api import RunError
from rlcore.api.runtime import Arrival, Verdict
from rlcore_plugin_workers.schedule_service import Outcome, Parcel

__all__ = ["GatheredDeliveries"]


class GatheredDeliveries:
    """``deliver`` is a ``ScheduleService.deliver`` for a ``GroupStore`` in another process than the schedule. For one event loop.

    A delivery goes at once if no call is under way. What comes while one is waits for its answer, and goes in the next call, in the order
    in which it came: no delivery waits for a clock, and the slower the schedule answers, the more a call brings it.
    """

    def __init__(self, send: Callable[[Sequence[Parcel]], Awaitable[Sequence[Outcome]]]) -> None:
        """``send``: ``ScheduleService.deliver_parcels``, wherever it is."""
        self._send = send
        self._waiting: list[tuple[Parcel, asyncio.Future[list[Verdict]]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def deliver(self, store: str, worker: str, arrivals: Sequence[Arrival]) -> list[Verdict]:
        """``ScheduleService.deliver``. The error of a call is raised to everybody whose groups were in it, and to nobody else."""
        verdicts: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
        self._waiting.append((Parcel(store=store, worker=worker, arrivals=tuple(arrivals)), verdicts))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await verdicts

    async def _send_all(self) -> None:
        gathered: list[tuple[Parcel, asyncio.Future[list[Verdict]]]] = []
        try:
            while self._waiting:
                gathered, self._waiting = self._waiting, []
                for (_, verdicts), outcome in zip(gathered, await self._sent([parcel for parcel, _ in gathered]), strict=True):
                    if verdicts.done():  # whoever asked is gone
                        continue
                    if isinstance(outcome, Exception):
                        verdicts.set_exception(outcome)
                    else:
                        verdicts.set_result(outcome)
        finally:
            abandoned, self._waiting, self._sender = [*gathered, *self._waiting], [], None
            for _, verdicts in abandoned:  # done, unless this task was cancelled: then nobody must wait for ever
                verdicts.cancel()

    async def _sent(self, parcels: Sequence[Parcel]) -> Sequence[list[Verdict] | Exception]:
        """One outcome for each, whatever becomes of the call: everybody waits for one."""
        try:
            outcomes = await self._send(parcels)
        except Exception as error:
            return [error] * len(parcels)
        if len(outcomes) != len(parcels):
            return [RunError(f"the schedule answered {len(parcels)} deliveries with {len(outcomes)} outcomes")] * len(parcels)
        return outcomes
