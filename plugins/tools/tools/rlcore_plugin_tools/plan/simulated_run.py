"""The real coordinator under a virtual clock: a heap of events, no threads, no sleeping.

Producers lease, generate, have groups judged, and deliver. The trainer takes batches, updates and publishes; weights are transferred in
parallel. The coordinator makes every decision; this module decides only when to call it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from rlcore.api import ConfigError, Lease, RunError
from rlcore.api.schedule import Coordinator, Delivery, LeaseQueue, TrainOrder
from rlcore_plugin_tools.plan.draws import Draws
from rlcore_plugin_tools.plan.measure import Figures, SourceSums, Sums, figures
from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.simulated_engine import Work
from rlcore_plugin_tools.plan.simulated_producer import SimulatedProducer

__all__ = ["Simulation", "simulate"]

MOST_FAILURES, FAILURES_A_GROUP = 1000, 10
"""A run ends after this many failures (ten per producer in a large cluster), plus this many for every delivered group."""


def simulate(scenario: Scenario) -> Figures:
    """Run a scenario to the end of its last measured update; the figures are the same every time. Raises ConfigError if producers fail so
    often that almost nothing is delivered."""
    return Simulation(scenario).run()


class Simulation:
    """One running scenario. ``now``: seconds of virtual time; ``coordinator``: the real one."""

    def __init__(self, scenario: Scenario, draws: Draws | None = None) -> None:
        """Begin. ``draws``: lengths, latencies and failures of another run, to compare with it; None: the scenario's own."""
        self.scenario = scenario
        self.coordinator = Coordinator(scenario.schedule(), among=scenario.among and scenario.among(scenario.seed))
        self.now = 0.0
        self.sums = Sums()
        self.peak_buffer = 0
        self._draws = draws or Draws(scenario)
        update = scenario.weight_update
        self._stall = update.stall + scenario.workload.overheads.publish_seconds
        self._pause = update.pause + scenario.workload.overheads.swap_seconds
        self._sending, self._holding, self._together = update.sending, update.holding, update.together
        self._producers = [SimulatedProducer(place, scenario) for place in range(scenario.producers)]
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0
        self._by_name = {producer.name: producer for producer in self._producers}
        self._queue = LeaseQueue(on_policy=scenario.alternating)
        self._alive = scenario.producers
        self._ready: dict[int, Work] = {}
        self._training = False
        self._published = 0
        self._arrived = 0
        self._transferring = False
        self._delivered = 0
        self._decoded = [0.0] * len(self.coordinator.settings.parts)
        """Tokens of the groups that were generated, by source."""
        self._before: Sums | None = None
        self._after: Sums | None = None
        self._begin()

    # --- the clock ---------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the last measured update or the run is over."""
        return self._after is not None or self.coordinator.finished

    def run(self) -> Figures:
        """Process events until the measurement is complete. Raises RunError if the schedule stalls before that."""
        while not self.done:
            self.step()
        return self.figures()

    def step(self) -> None:
        """Process the next event."""
        if not self._events:
            raise RunError(f"the simulated schedule stalls at version {self.coordinator.version}: {self.coordinator.status()}")
        moment, _, act, arguments = heapq.heappop(self._events)
        if moment < self.now:
            raise RunError(f"the simulated clock would run backwards, from {self.now} to {moment} s: a defect of the simulation, report it")
        self.now = moment
        act(*arguments)

    def _in(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        self._at(self.now + seconds, act, *arguments)

    def _at(self, moment: float, act: Callable[..., None], *arguments: Any) -> None:
        self._planned += 1
        heapq.heappush(self._events, (moment, self._planned, act, arguments))

    def _begin(self) -> None:
        if self.scenario.warm_up == 0:
            self._before = self._sums()
        for producer in self._producers:
            self._mortal(producer)
            self._queued(producer)
        self._deal()

    # --- producers ---------------------------------------------------------------------------------------------------

    def _ask(self, producer: SimulatedProducer) -> None:
        """Ask for leases if the producer can use some; the reply waits until there is at least one."""
        hopeless = self._queue.hopeless(producer.offered)  # then the event that makes room also grants leases
        if self._queued(producer) and not hopeless:
            self._deal()

    def _queued(self, producer: SimulatedProducer) -> bool:
        """Take new weights if it is time for them; return whether the producer now waits for leases."""
        if producer.offered > producer.engine.serving:
            if self.scenario.workload.weights.weights_taken == "between" and producer.generating:
                self._queue.leave(producer.name)
                return False
            self._swap(producer)
        if producer.in_flight <= producer.generating:
            return False
        self._queue.wait(producer.name, asks=producer.in_flight - producer.generating, serving=producer.engine.serving)
        return True

    def _deal(self) -> None:
        """Grant leases to waiting producers, since there may be room now."""
        for name, leases in self._queue.grant(self.coordinator, alive=self._alive).items():
            self._granted(self._by_name[name], leases)

    def _granted(self, producer: SimulatedProducer, leases: Sequence[Lease]) -> None:
        works = []
        for lease in leases:
            source = lease.source_index
            lengths = self._draws.responses(source)
            works.append(Work(lease.lease_id, self._draws.prompt(source), lengths, len(lengths), source))
            producer.held[lease.lease_id] = works[-1]
        producer.generating += len(works)
        self._in(self.scenario.workload.overheads.lease_seconds, self._start, producer, producer.life, works)

    def _start(self, producer: SimulatedProducer, life: int, works: list[Work]) -> None:
        if producer.life == life:
            producer.engine.submit(self.now, works)
            self._plan_end(producer)
            self._ask(producer)

    def _plan_end(self, producer: SimulatedProducer) -> None:
        producer.pending += 1
        moment = producer.engine.next_end()
        if moment is not None:
            self._at(max(self.now, moment), self._ended, producer, producer.pending)

    def _ended(self, producer: SimulatedProducer, pending: int) -> None:
        if producer.pending != pending:
            return
        whole = producer.engine.end(self.now)
        producer.generating -= len(whole)
        for work in whole:
            self._decoded[work.source] += work.decoded
            moment = producer.judged_at(self.now, self._draws.verdicts(work.source))
            overhead = self.scenario.workload.overheads.deliver_seconds
            self._at(moment + overhead, self._deliver, producer, producer.life, work)
        if whole:
            self._ask(producer)
        self._plan_end(producer)

    def _deliver(self, producer: SimulatedProducer, life: int, work: Work) -> None:
        if producer.life != life:
            return
        self._delivered += 1
        del producer.held[work.lease_id]
        accuracy = self._draws.accuracy(work.source)
        delivery = Delivery(lease_id=work.lease_id, version=work.version, accuracy=accuracy, reward=accuracy)
        if self.coordinator.deliver([delivery])[0].kept:
            self._ready[work.lease_id] = work
            self.peak_buffer = max(self.peak_buffer, len(self._ready))
            self._train()
        self._deal()

    # --- the trainer -------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        if self._training:
            return
        order = self.coordinator.next_batch()
        if order is None:
            return
        self._training = True
        works = [self._ready.pop(lease_id) for lease_id in order.lease_ids]
        seconds = self.scenario.update_seconds(sum(work.tokens for work in works))
        self._in(self.scenario.workload.overheads.handover_seconds + seconds, self._updated, order, works, seconds)
        self._deal()

    def _updated(self, order: TrainOrder, works: Sequence[Work], seconds: float) -> None:
        version = self.coordinator.updated()
        sums, overheads = self.sums, self.scenario.workload.overheads
        sums.updates = version
        sums.groups += len(works)
        sums.response_tokens += sum(work.decoded for work in works)
        sums.trainer_busy += seconds
        sums.staleness.update(order.version - age for age in order.versions)
        self._measure()
        sums.publishing += self._stall
        switch = 2 * overheads.switch_seconds if self.scenario.colocated else 0.0
        self._in(self._stall + switch, self._publish, version)
        if self._together:
            self._offer(version)
        self._deal()

    def _publish(self, version: int) -> None:
        self._training = False
        if not self._together:
            self._offer(version)
        self._train()

    def _offer(self, version: int) -> None:
        self._published = version
        self._transfer()

    def _transfer(self) -> None:
        """Start the transfer of the newest version unless one is running; a version published meanwhile waits."""
        if not self._transferring and self._published > self._arrived:
            self._transferring = True
            self._in(self._sending, self._arrive, self._published)

    def _arrive(self, version: int) -> None:
        self._arrived = version
        for producer in self._producers:
            if producer.alive:
                producer.offered = version
                self._queued(producer)
        self._deal()
        self._in(self._holding, self._sent)

    def _sent(self) -> None:
        self._transferring = False
        self._transfer()

    def _swap(self, producer: SimulatedProducer) -> None:
        producer.engine.serving = producer.offered
        producer.engine.pause(self.now, self._pause)
        self.sums.taking += self._pause
        if producer.engine.running:
            self._plan_end(producer)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _mortal(self, producer: SimulatedProducer) -> None:
        workload = self.scenario.workload
        mean = workload.faults.seconds_between(workload.generation.producer_devices)
        if mean is not None:
            self._in(self._draws.until_failure(mean), self._fail, producer)

    def _fail(self, producer: SimulatedProducer) -> None:
        self.sums.failures += 1
        if self.sums.failures >= max(MOST_FAILURES, 10 * len(self._producers)) + FAILURES_A_GROUP * self._delivered:
            raise ConfigError(
                f"--device-hours {self.scenario.workload.faults.device_hours:g}: producers failed {self.sums.failures} times and delivered "
                f"{self._delivered} groups; type more device hours, or shorter responses"
            )
        self._alive -= 1
        self.sums.lost_tokens += producer.die(self.now)
        self._queue.leave(producer.name)
        self.coordinator.worker_lost(producer.name)
        self._deal()
        self._in(self.scenario.workload.faults.restart_seconds, self._restart, producer)

    def _restart(self, producer: SimulatedProducer) -> None:
        self.sums.producers_down += self.now - producer.down_since
        producer.alive = True
        self._alive += 1
        producer.engine.serving = producer.offered = self._arrived
        self._mortal(producer)
        self._ask(producer)

    # --- figures -----------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        updates = self.sums.updates
        if updates == self.scenario.warm_up:
            self._before = self._sums()
        if updates == self.scenario.warm_up + self.scenario.updates or self.coordinator.finished:
            self._after = self._sums()

    def _sums(self) -> Sums:
        """Return a copy of everything counted, after advancing the engines to now."""
        for producer in self._producers:
            producer.engine.advance(self.now)
        sums, engines = self.sums, [producer.engine for producer in self._producers]
        down = sum(self.now - producer.down_since for producer in self._producers if not producer.alive)
        return Sums(
            time=self.now,
            updates=sums.updates,
            groups=sums.groups,
            response_tokens=sums.response_tokens,
            trainer_busy=sums.trainer_busy,
            publishing=sums.publishing,
            taking=sums.taking,
            producers_busy=sum(engine.busy for engine in engines),
            producers_down=sums.producers_down + down,
            slot_seconds=sum(engine.slot_seconds for engine in engines),
            decoded_tokens=sum(engine.tokens for engine in engines),
            lost_tokens=sums.lost_tokens,
            failures=sums.failures,
            staleness=sums.staleness.copy(),
            sources=self._by_source(),
        )

    def _by_source(self) -> list[SourceSums]:
        return [
            SourceSums(
                issued=sum(tally.issued for tally in ledger.episodes.values()),
                reissued=ledger.reissued,
                decoded_tokens=tokens,
                **ledger.ended(),
            )
            for ledger, tokens in zip(self.coordinator.ledgers, self._decoded, strict=True)
        ]

    def figures(self) -> Figures:
        """Return the figures of the measurement. Raises RunError if the run ended before the end of its warm-up."""
        if self._before is None or self._after is None:
            raise RunError(f"the simulated run ended at version {self.coordinator.version}, before anything could be measured")
        scenario, workload = self.scenario, self.scenario.workload
        return figures(
            self._before,
            self._after,
            producers=scenario.producers,
            slots=workload.generation.slots,
            device_shares=(
                scenario.producers * workload.generation.producer_devices / scenario.devices,
                scenario.trainers * workload.update.trainer_devices / scenario.devices,
            ),
            peak_buffer=self.peak_buffer,
            events=self._planned,
            names=[source.name for source in workload.sources],
        )
