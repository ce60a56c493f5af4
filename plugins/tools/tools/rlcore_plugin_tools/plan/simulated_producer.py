"""A simulated producer: an engine, the processes that judge beside it, and the groups in its hands."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.simulated_engine import Engine, Work

__all__ = ["SimulatedProducer"]


class SimulatedProducer:
    """What it holds and may take; when things happen is the simulation's concern."""

    __slots__ = ("_judges", "alive", "down_since", "engine", "generating", "held", "in_flight", "life", "name", "offered", "pending")

    def __init__(self, place: int, scenario: Scenario) -> None:
        self.name = f"producer-{place}"
        self.engine = Engine(scenario.workload.generation)
        self.in_flight = scenario.groups_per_producer
        self.offered = 0
        """The newest version that has arrived; above what the engine serves while it waits to be taken."""
        self.generating = 0
        """Groups that occupy it; those that wait for a verdict do not."""
        self.alive = True
        self.life = 0
        """Raised at every death: what an earlier life had planned is void."""
        self.pending = 0
        """Raised whenever the engine's next end changes: the event planned before is void."""
        self.down_since = 0.0
        self.held: dict[int, Work] = {}
        """Leased and not delivered, by lease."""
        self._judges = [0.0] * scenario.workload.rewards.reward_workers

    def judged_at(self, now: float, seconds: Sequence[float]) -> float:
        """When the last of a group's responses is judged: each takes the first free process, in order."""
        last = now
        for one in seconds:
            done = max(now, self._judges[0]) + one
            heapq.heapreplace(self._judges, done)
            last = max(last, done)
        return last

    def die(self, now: float) -> float:
        """Drops everything; returns the decoded tokens that nobody will see."""
        lost = self.engine.die(now) + sum(work.decoded for work in self.held.values())
        self.held.clear()
        self._judges = [now] * len(self._judges)
        self.alive, self.down_since = False, now
        self.generating = 0
        self.life += 1
        self.pending += 1
        return lost
