"""A simulated producer: an engine, the processes that judge in parallel with it, and the groups that it holds."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.simulated_engine import Engine, Work

__all__ = ["SimulatedProducer"]


class SimulatedProducer:
    """The state and capacity of one producer; the simulation decides when events happen."""

    __slots__ = ("_judges", "alive", "down_since", "engine", "generating", "held", "in_flight", "life", "name", "offered", "pending")

    def __init__(self, place: int, scenario: Scenario) -> None:
        self.name = f"producer-{place}"
        self.engine = Engine(scenario.workload.generation)
        self.in_flight = scenario.groups_per_producer
        self.offered = 0
        """The newest version that has arrived; higher than the engine's version until the producer takes it."""
        self.generating = 0
        """Groups that occupy it; groups that wait for a verdict do not count."""
        self.alive = True
        self.life = 0
        """Increases at every death; events planned in an earlier life are void."""
        self.pending = 0
        """Increases whenever the engine's next end changes; the event planned before is void."""
        self.down_since = 0.0
        self.held: dict[int, Work] = {}
        """Groups leased and not delivered, by lease."""
        self._judges = [0.0] * scenario.workload.rewards.reward_workers

    def judged_at(self, now: float, seconds: Sequence[float]) -> float:
        """Return when the last of a group's responses is judged; each takes the first free process, in order."""
        last = now
        for one in seconds:
            done = max(now, self._judges[0]) + one
            heapq.heapreplace(self._judges, done)
            last = max(last, done)
        return last

    def die(self, now: float) -> float:
        """Drop everything; return the number of decoded tokens that are lost."""
        lost = self.engine.die(now) + sum(work.decoded for work in self.held.values())
        self.held.clear()
        self._judges = [now] * len(self._judges)
        self.alive, self.down_since = False, now
        self.generating = 0
        self.life += 1
        self.pending += 1
        return lost
