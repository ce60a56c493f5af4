"""Searches the split of devices between producers and trainers: a closed form ranks every split, and the best few are simulated.

The search simulates slices of large clusters (``Scenario.sliced``); the recommended split is simulated whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from rlcore.api import ConfigError
from rlcore.api.schedule import ChosenSampler
from rlcore_plugin_tools.plan.bounds import enough_updates, estimated_period
from rlcore_plugin_tools.plan.measure import Figures
from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.simulated_run import simulate
from rlcore_plugin_tools.plan.workload_model import Workload

__all__ = ["Advice", "SplitChoice", "advise"]

MOST_SLICED_REQUESTS = 2048
"""Responses of an update in a slice of the search."""
STALENESS = (1, 2, 4, 8, 16, 32)
CLOSE = 0.02
"""Less staleness, or a smaller buffer, is preferred if it costs at most this share of the throughput."""
_FIRST_BUFFER = 0.5
_BUFFERS = (0.25, 0.35, 0.5, 0.7, 1.0)
_FEW = 8
_FAR = (0.6, 0.8, 1.0, 1.25, 1.6, 2.2)
_NEAR = (0.75, 0.87, 1.0, 1.15, 1.33)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChoice:
    """A simulated split and its figures."""

    scenario: Scenario
    figures: Figures

    @property
    def speed(self) -> float:
        """Groups a second."""
        return self.figures.groups_per_second

    def as_json(self) -> dict[str, Any]:
        """Return the split, the settings to type, and the figures."""
        s = self.scenario
        return {
            "producers": s.producers,
            "trainers": s.trainers,
            "devices_used": s.devices,
            "max_staleness": s.max_staleness,
            "buffer_limit": s.buffer,
            "in_flight": s.groups_per_producer,
            "train_batch_size": s.batch,
            "colocated": s.colocated,
            **self.figures.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The best split of each kind for so many devices; ``tried``: every (sliced) simulation of the search."""

    devices: int
    zero_bubble: SplitChoice
    synchronous: SplitChoice
    colocated: SplitChoice
    tried: tuple[SplitChoice, ...]

    @property
    def speedup(self) -> float:
        """The speed of zero bubble over that of synchronous training, each on its own split."""
        return self.zero_bubble.speed / self.synchronous.speed

    @property
    def flags(self) -> str:
        """The flags to type after ``rlcore train``, which counts one trainer per device; ``-tp`` says how many of them share one model."""
        scenario = self.zero_bubble.scenario
        workload = scenario.workload
        layout = {"-tp": workload.update.trainer_devices, "-ptp": workload.generation.producer_devices}
        words = {
            "-i": scenario.producers,
            "-t": round(scenario.trainers) * workload.update.trainer_devices,
            **{flag: size for flag, size in layout.items() if size > 1},
            **({} if workload.sources else {"-g": workload.group.num_generations}),
            "-tbs": scenario.batch,
            "-ibs": scenario.groups_per_producer,
            "--max-staleness": scenario.max_staleness,
            "-cbsl": scenario.buffer,
            **({"--transport": transport} if (transport := workload.weights.transport) not in ("auto", "direct") else {}),
        }
        return " ".join(f"{flag} {value}" for flag, value in words.items())


def advise(
    workload: Workload,
    devices: int,
    *,
    split: tuple[int, int] | None = None,
    max_staleness: int | None = None,
    updates: int = 30,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    among: Callable[[int], ChosenSampler] | None = None,
) -> Advice:
    """Search splits of ``devices``, or only simulate one ``split`` (producers, trainers). ``max_staleness``: the one to use; None: the
    smallest that is nearly as fast as any.

    ``say`` receives a line about each simulation. ``among``: as in ``Scenario``.

    Raises ConfigError if the devices cannot hold one producer and one trainer.
    """
    one = Scenario(workload=workload, producers=1, trainers=1, updates=updates, seed=seed, among=among)
    search = _Search(one, devices, split, say)
    synchronous = search.whole(search.best(search.splits(0)))
    overlapped = synchronous if max_staleness == 0 else search.whole(search.overlapped(max_staleness))
    colocated = search.whole(search.colocated())
    return Advice(devices=devices, zero_bubble=overlapped, synchronous=synchronous, colocated=colocated, tried=tuple(search.tried))


class _Search:
    """One search: its arguments, and everything that it simulated. ``one``: a scenario; the search changes its split and its staleness."""

    def __init__(self, one: Scenario, devices: int, split: tuple[int, int] | None, say: Callable[[str], None]) -> None:
        workload = one.workload
        least = workload.generation.producer_devices + workload.update.trainer_devices
        if devices < least:
            raise ConfigError(
                f"--devices {devices}: one producer and one trainer of this workload take {least} devices; type at least {least}"
            )
        _refuse_several_nodes(workload, devices)
        self.tried: list[SplitChoice] = []
        self._one, self._workload = one, workload
        self._devices = devices
        self._split = split
        self._say = say

    def _scenario(
        self, producers: int, trainers: int, max_staleness: int, *, buffer: int | None = None, colocated: bool = False
    ) -> Scenario:
        return replace(
            self._one,
            producers=producers,
            trainers=trainers,
            max_staleness=max_staleness,
            buffer_limit=buffer,
            colocated=colocated,
            warm_up=_warm_up(max_staleness),
        )

    def splits(self, max_staleness: int, *, buffer: int | None = None, near: Scenario | None = None) -> list[Scenario]:
        """Return every split if there are few; otherwise some on both sides of ``near``, or of the split with the best estimate."""
        every = self._every_split(max_staleness, buffer)
        if len(every) <= _FEW:
            return every
        middle = near or min(every, key=estimated_period)
        odds = middle.producers / middle.trainers
        wanted = sorted({round(self._trainers(odds * factor)) for factor in (_NEAR if near else _FAR)})
        nearest = (min(every, key=lambda one: abs(one.trainers - trainers)) for trainers in wanted)
        return list({one.trainers: one for one in nearest}.values())

    def _every_split(self, max_staleness: int, buffer: int | None) -> list[Scenario]:
        """Return one split per number of producers, with as many trainers as the remaining devices allow."""
        if self._split is not None:
            return [self._scenario(*self._split, max_staleness, buffer=buffer)]
        per_producer, per_trainer = self._workload.generation.producer_devices, self._workload.update.trainer_devices
        most = (self._devices - per_producer) // per_trainer
        # Several numbers of trainers leave devices for the same number of producers. The dictionary keeps the last, which idles the least.
        filled = {(self._devices - trainers * per_trainer) // per_producer: trainers for trainers in range(1, most + 1)}
        return [self._scenario(producers, trainers, max_staleness, buffer=buffer) for producers, trainers in filled.items()]

    def _trainers(self, odds: float) -> float:
        """Return the number of trainers at a given number of producers per trainer."""
        return self._devices / (self._workload.update.trainer_devices + odds * self._workload.generation.producer_devices)

    def overlapped(self, max_staleness: int | None) -> Scenario:
        """Return the best scenario with overlap. Find the staleness that a balanced split needs, the best split with it, the buffer, and
        the split again, because each shifts the others a little. Finally lower the staleness to the observed maximum."""
        age = max_staleness
        if age is None:
            balanced = min(self._every_split(STALENESS[-1], None), key=estimated_period)
            age = self.smallest([self._aged(balanced, one) for one in STALENESS]).max_staleness
        found = self.best(self.splits(age, buffer=self._buffer(age, _FIRST_BUFFER)))
        limits = sorted({self._buffer(age, share) for share in _BUFFERS})
        found = self.smallest([replace(found, buffer_limit=limit) for limit in limits])
        found = self.best(self.splits(age, buffer=found.buffer_limit, near=found))
        if max_staleness is None:
            seen = max(1, next(one.figures.staleness_max for one in reversed(self.tried) if one.scenario == found))
            found = self.smallest([replace(found, max_staleness=seen), found]) if seen < age else found
        return found

    def _aged(self, scenario: Scenario, max_staleness: int) -> Scenario:
        buffer = self._buffer(max_staleness, _FIRST_BUFFER)
        return replace(scenario, max_staleness=max_staleness, buffer_limit=buffer, warm_up=_warm_up(max_staleness))

    def _buffer(self, max_staleness: int, share: float) -> int:
        """Return a share of the groups that staleness allows, in whole batches, at least two batches."""
        return max(2, round(share * (max_staleness + 1))) * self._workload.group.train_batch_size

    def colocated(self) -> Scenario:
        """Return the scenario with both roles on all devices, alternating."""
        w = self._workload
        return self._scenario(
            max(1, self._devices // w.generation.producer_devices), max(1, self._devices // w.update.trainer_devices), 0, colocated=True
        )

    def best(self, scenarios: Sequence[Scenario]) -> Scenario:
        """Return the fastest scenario."""
        return max((self._slice(one) for one in scenarios), key=lambda choice: choice.speed).scenario

    def smallest(self, scenarios: Sequence[Scenario]) -> Scenario:
        """Return the first scenario that is nearly as fast as the fastest."""
        choices = [self._slice(one) for one in scenarios]
        enough = max(choice.speed for choice in choices) * (1 - CLOSE)
        return next(choice for choice in choices if choice.speed >= enough).scenario

    def _slice(self, scenario: Scenario) -> SplitChoice:
        """Simulate a slice. The result names the whole scenario, and its speed is that of the whole."""
        small, parts = scenario.sliced(MOST_SLICED_REQUESTS)
        self._tell(scenario, f", 1/{parts} of it" if parts > 1 else "")
        figures = simulate(replace(small, updates=enough_updates(scenario, small.updates)))
        scale = scenario.batch / small.batch
        choice = SplitChoice(scenario=scenario, figures=replace(figures, groups_per_second=figures.groups_per_second * scale))
        self.tried.append(choice)
        return choice

    def whole(self, scenario: Scenario) -> SplitChoice:
        """Simulate the whole scenario, unless the search has already simulated it whole."""
        known = next((one for one in self.tried if one.scenario == scenario and scenario.sliced(MOST_SLICED_REQUESTS)[1] == 1), None)
        if known is not None:
            return known
        self._tell(scenario, ", all of it")
        return SplitChoice(scenario=scenario, figures=simulate(replace(scenario, updates=enough_updates(scenario, scenario.updates))))

    def _tell(self, scenario: Scenario, much: str) -> None:
        kind = "colocated" if scenario.colocated else f"staleness {scenario.max_staleness}"
        self._say(f"{scenario.producers} producers, {scenario.trainers:g} trainers, {kind}, buffer {scenario.buffer}{much}")


def _refuse_several_nodes(workload: Workload, devices: int) -> None:
    each = workload.weights.devices_per_node
    if workload.weights.transport == "shared" and devices > each:
        raise ConfigError(
            f"--transport shared: {devices} devices are on {ceil(devices / each)} nodes of {each}, and shared memory is available only "
            "within one node; type --transport object_store, or set --devices-per-node"
        )


def _warm_up(max_staleness: int) -> int:
    """Return the updates until the buffer level is stable: it fills at the start, before anything is trained."""
    return 4 + 2 * max_staleness
