"""The law of staleness: how many groups may be leased, and when an update must wait for a straggler.

Write v for completed updates, s for ``max_staleness``, B for ``train_batch_size``. Groups of version <= x must be trained by the update
that starts at x + s, so x + s + 1 - v batches are left for them. No schedule can keep the bound if more than (x + s + 1 - v) x B of them
are outstanding. Oldest-first keeps it as long as that holds for every x (earliest deadline first). ``room`` keeps it when groups are
leased. ``must_wait`` keeps it when a batch leaves without those in flight. With ``partial_rollouts`` the bound is one of tokens: no update
waits, and the tokens of version < v - s do not train in the update that starts at v.
"""

from __future__ import annotations

from rlcore.contracts.runtime_interface import Admission
from rlcore.schedule.schedule_records import ScheduleSettings

__all__ = ["Ages", "must_wait", "room"]


class Ages:
    """The number of groups of each version: a multiset of versions. Few distinct versions exist at a time (``max_staleness`` + 1)."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.total = 0

    def add(self, version: int) -> None:
        self._counts[version] = self._counts.get(version, 0) + 1
        self.total += 1

    def remove(self, version: int) -> None:
        """Remove one group of this version. Raise KeyError if there is none."""
        left = self._counts[version] - 1
        if left:
            self._counts[version] = left
        else:
            del self._counts[version]
        self.total -= 1

    def up_to(self, version: int) -> int:
        """Return the number of groups of this version or older."""
        return sum(count for age, count in self._counts.items() if age <= version)

    def oldest_first(self) -> list[tuple[int, int]]:
        """Return (version, count), oldest first."""
        return sorted(self._counts.items())


def room(settings: ScheduleSettings, *, started: int, version: int, serving: int, in_flight: Ages, ready: Ages) -> tuple[int, Admission]:
    """Return how many groups of version ``serving`` may be leased now (possibly <= 0), and the reason for the limit.

    ``started``: updates completed or under way. ``serving`` <= ``version``. For ``serving == version`` this is the admission formula,
    trained + buffered + in flight <= (v + max_staleness + 1) x train_batch_size. An older policy must also leave room for newer groups.
    """
    batch = settings.train_batch_size
    if serving + settings.max_staleness < started:
        return 0, Admission.STALENESS
    best = min(
        (newest + settings.max_staleness + 1 - started) * batch
        - (in_flight.total + ready.total if newest == version else in_flight.up_to(newest) + ready.up_to(newest))
        for newest in range(serving, version + 1)
    )
    limit = Admission.STALENESS
    if settings.max_steps is not None:
        horizon = (settings.max_steps - started) * batch - in_flight.total - ready.total
        if horizon <= best:
            best, limit = horizon, Admission.EXHAUSTED
    return best, limit


def must_wait(settings: ScheduleSettings, version: int, in_flight: Ages) -> bool:
    """Return whether the update version -> version + 1 must wait for a group in flight: the barrier.

    The update may leave without groups of version <= x only if the later batches can still hold them all within the bound. That allows at
    most (x + s - v) x B groups of version <= x in flight; with x = v - s none.
    """
    left_behind = 0
    for age, count in in_flight.oldest_first():
        left_behind += count
        if left_behind > (age + settings.max_staleness - version) * settings.train_batch_size:
            return True
    return False
