"""Who gets the next leases, where many workers wait for some: one policy, for every runtime that has more than one producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rlcore.contracts.types import Lease
from rlcore.schedule.coordinator import Coordinator

__all__ = ["LeaseQueue", "grant"]


def grant(waiting: Iterable[tuple[str, int]], lease: Callable[[str], Lease | None]) -> dict[str, list[Lease]]:
    """Leases in turns, one a worker, so that none takes all of what there is.

    ``waiting``: (name, how many it asks for), first served first, each name once; it is read only as far as it gives, while the first
    turn lasts. ``lease(name)``: one for this worker, or None where it gets no more. Returns those of each worker that got some.
    """
    dealt: dict[str, list[Lease]] = {}
    hands = waiting
    while hands:
        still: list[tuple[str, int]] = []
        for name, asks in hands:
            if len(dealt.get(name, ())) < asks and (granted := lease(name)) is not None:
                dealt.setdefault(name, []).append(granted)
                still.append((name, asks))
        hands = still
    return dealt


@dataclass(slots=True)
class _Waiting:
    asks: int
    serving: int


class LeaseQueue:
    """The workers that wait for leases, and the order in which they get them.

    On-policy (staleness 0) leases are dealt in whole waves and by name: only once every worker that lives waits with the newest weights,
    and nothing is in flight, so that who makes which prompt depends on no timing. Otherwise whoever has waited longest comes first:
    where places open one by one, each worker gets its turn.
    """

    def __init__(self, *, on_policy: bool) -> None:
        self._on_policy = on_policy
        self._waiting: dict[str, _Waiting] = {}
        """Longest first."""

    def wait(self, name: str, *, asks: int, serving: int) -> None:
        """The worker waits for up to ``asks`` leases, and would start them with weights of version ``serving`` (-1: it has none yet).
        Who waits already keeps its place."""
        self._waiting[name] = _Waiting(asks, serving)

    def leave(self, name: str) -> None:
        """The worker waits no longer, if it did."""
        self._waiting.pop(name, None)

    def hopeless(self, serving: int) -> bool:
        """Whether nobody with these weights can be given anything now, as one who waits was refused with weights as new. To be asked only
        where everything that makes room is followed by ``grant``."""
        first = next(iter(self._waiting.values()), None)
        return not self._on_policy and first is not None and serving <= first.serving

    def grant(self, coordinator: Coordinator, *, alive: int) -> dict[str, list[Lease]]:
        """What can be given now, by worker; who got something waits no longer. ``alive``: the workers that live, whether they wait or not.

        The coordinator never grants to older weights what it refuses to newer ones, so a refusal settles it for many.
        """
        newest = coordinator.version
        if self._on_policy and not self._whole_wave(coordinator, alive):
            return {}
        order = sorted(self._waiting) if self._on_policy else self._waiting
        refused = -1

        def places() -> Iterator[tuple[str, int]]:
            for name in order:
                if refused >= newest:
                    return
                yield name, self._waiting[name].asks

        def lease(name: str) -> Lease | None:
            nonlocal refused
            serving = self._waiting[name].serving
            if serving <= refused:
                return None
            if granted := coordinator.lease(name, 1, serving=serving):
                return granted[0]
            refused = serving
            return None

        dealt = grant(places(), lease)
        for name in dealt:
            del self._waiting[name]
        return dealt

    def _whole_wave(self, coordinator: Coordinator, alive: int) -> bool:
        ready = len(self._waiting) >= alive and all(one.serving >= coordinator.version for one in self._waiting.values())
        return ready and coordinator.status().in_flight == 0
