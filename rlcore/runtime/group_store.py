"""Where groups wait between generation and training: one store a node, so that a group outlives the producer that made it.

A plain asyncio object; the Ray runtime makes an actor of it. It alone tells the schedule of its groups, so that what the schedule
believes to be here is here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rlcore.contracts.types import Group
from rlcore.runtime.schedule_service import Arrival
from rlcore.schedule import Verdict

__all__ = ["Deliver", "GroupStore"]

Deliver = Callable[[str, str, Sequence[Arrival]], Awaitable[list[Verdict]]]
"""``ScheduleService.deliver``, wherever it is."""


class GroupStore:
    """Groups by lease. ``keep_scored``: also hold every scored group for the run's observers, whatever became of it. ``started``: called at
    every start."""

    def __init__(self, name: str, deliver: Deliver, *, keep_scored: bool = False, started: Callable[[], None] = lambda: None) -> None:
        started()
        self.name = name
        self._deliver = deliver
        self._groups: dict[int, Group] = {}
        self._keep_scored = keep_scored
        self._scored: list[Group] = []

    async def deliver(self, worker: str, arrivals: Sequence[Arrival], groups: Sequence[Group]) -> int:
        """Take a producer's groups and report them; how many of them were kept. Those that are not wanted are dropped at once."""
        if self._keep_scored:
            self._scored += groups
        for arrival, group in zip(arrivals, groups, strict=True):
            self._groups[arrival.delivery.lease_id] = group
        try:
            verdicts = await self._deliver(self.name, worker, arrivals)
        except Exception:
            self._drop(arrivals)
            raise
        self._drop(arrival for arrival, verdict in zip(arrivals, verdicts, strict=True) if not verdict.kept)
        return sum(verdict.kept for verdict in verdicts)

    def _drop(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self._groups.pop(arrival.delivery.lease_id, None)

    async def read(self, lease_ids: Sequence[int]) -> tuple[tuple[int, ...], Mapping[int, Group]]:
        """(the leases whose groups are not here, the others' groups by lease). They stay until ``forget``: their batch may become void."""
        here = {lease_id: self._groups[lease_id] for lease_id in lease_ids if lease_id in self._groups}
        return tuple(lease_id for lease_id in lease_ids if lease_id not in here), here

    async def forget(self, lease_ids: Sequence[int]) -> None:
        """These were trained."""
        for lease_id in lease_ids:
            self._groups.pop(lease_id, None)

    async def take_scored(self) -> list[Group]:
        """Every group that was scored since the last call; empty unless ``keep_scored``."""
        scored, self._scored = self._scored, []
        return scored
