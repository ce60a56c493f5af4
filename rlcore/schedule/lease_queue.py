"""The order in which waiting workers receive leases: one policy for every runtime with more than one producer."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.contracts.lease import Lease
from rlcore.schedule.coordinator import Coordinator

__all__ = ["LeaseQueue"]


@dataclass(slots=True)
class _Waiting:
    asks: int
    serving: int


class LeaseQueue:
    """The workers that wait for leases, and the order in which they receive them.

    On-policy (staleness 0), leases are dealt in whole waves and by name. A wave begins only once every live worker waits with the newest
    weights and nothing is in flight, so that the assignment of prompts does not depend on timing. Otherwise the worker that has waited
    longest comes first: if leases become available one by one, the workers alternate.
    """

    def __init__(self, *, on_policy: bool) -> None:
        self._on_policy = on_policy
        self._waiting: dict[str, _Waiting] = {}
        """Longest first."""

    def wait(self, name: str, *, asks: int, serving: int) -> None:
        """Add a worker that waits for up to ``asks`` leases. A worker that is already waiting keeps its place.

        :param serving: the version of the weights with which it would start them, -1 if it has none yet.
        """
        self._waiting[name] = _Waiting(asks, serving)

    def leave(self, name: str) -> None:
        """Remove the worker from the queue, if it is waiting."""
        self._waiting.pop(name, None)

    def hopeless(self, serving: int) -> bool:
        """Return whether no worker with these weights can receive a lease now.

        That is known if a waiting worker with weights at least as new was refused. The answer is valid only if the caller calls ``grant``
        after every event that makes room.
        """
        first = next(iter(self._waiting.values()), None)
        return not self._on_policy and first is not None and serving <= first.serving

    def grant(self, coordinator: Coordinator, *, alive: int) -> dict[str, list[Lease]]:
        """Return the leases that can be granted now, by worker. A worker that receives a lease no longer waits.

        Leases are dealt in rounds, one per worker and round, so that no worker takes all of them.
        The coordinator never grants a lease for older weights that it refuses for newer ones, so one refusal decides for many workers.

        :param alive: the number of live workers, waiting or not.
        """
        dealt: dict[str, list[Lease]] = {}
        if self._on_policy and not self._whole_wave(coordinator, alive):
            return dealt
        names, refused = sorted(self._waiting) if self._on_policy else list(self._waiting), -1
        while names:
            served = []
            for name in names:
                one = self._waiting[name]
                if refused >= coordinator.version:
                    break
                if len(dealt.get(name, ())) == one.asks or one.serving <= refused:
                    continue
                if granted := coordinator.lease(name, 1, serving=one.serving):
                    dealt.setdefault(name, []).extend(granted)
                    served.append(name)
                else:
                    refused = one.serving
            names = served
        for name in dealt:
            del self._waiting[name]
        return dealt

    def _whole_wave(self, coordinator: Coordinator, alive: int) -> bool:
        ready = len(self._waiting) >= alive and all(one.serving >= coordinator.version for one in self._waiting.values())
        return ready and coordinator.status().in_flight == 0
