"""One simulation: a workload, the numbers of producers and trainers, the allowed staleness, and the length of the measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from rlcore.api.schedule import ChosenSampler, ScheduleSettings, SourceSchedule
from rlcore.testing import Lengths
from rlcore_plugin_tools.plan.weight_update import WeightUpdate
from rlcore_plugin_tools.plan.workload_model import SimulatedSource, Workload

__all__ = ["Scenario", "longest_share", "open_shares"]

_EPISODE_BATCHES = 64
_ENDLESS = 1 << 40
_FILTER = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulation. ``updates`` are measured after ``warm_up`` others. ``in_flight``: groups that one producer generates at a time
    (``-ibs``).

    ``trainers`` may be fractional in a slice of a cluster. ``buffer_limit``: groups in flight or waiting (``-cbsl``); None: only staleness
    bounds them. ``colocated``: both roles alternate on the same devices, which needs ``max_staleness = 0``. ``max_steps`` bounds the run
    itself, not the measurement: the coordinator leases no more than these steps need. ``cluster``: producers and trainers of the whole
    cluster if this is a slice; weights go to all of them. ``among``: makes the sampler of the sources with a seed; None: by weight. Raises
    ValueError for impossible numbers.
    """

    workload: Workload
    producers: int
    trainers: float
    max_staleness: int = 0
    buffer_limit: int | None = None
    in_flight: int | None = None
    train_batch_size: int | None = None
    colocated: bool = False
    updates: int = 20
    warm_up: int = 4
    max_steps: int | None = None
    seed: int = 0
    cluster: tuple[int, float] | None = None
    among: Callable[[int], ChosenSampler] | None = None

    def __post_init__(self) -> None:
        least = {"producers": 1, "max_staleness": 0, "updates": 1, "warm_up": 0, "seed": 0, "in_flight": 1, "train_batch_size": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"scenario: {name} must be at least {lowest}, got {value}")
        if not self.trainers > 0:
            raise ValueError(f"scenario: trainers must be above 0, got {self.trainers}")
        if self.colocated and not self.alternating:
            raise ValueError(f"scenario: colocated roles alternate, so max_staleness must be 0, got {self.max_staleness}")

    @property
    def alternating(self) -> bool:
        """True if generation and training alternate, as in a run with ``max_staleness`` 0."""
        return self.max_staleness == 0

    @property
    def batch(self) -> int:
        """Groups of one update."""
        return self.train_batch_size or self.workload.group.train_batch_size

    @property
    def responses(self) -> float:
        """Responses of one update, on average."""
        return sum(self.batch * share * part.num_generations for share, part in self.workload.trained)

    @property
    def buffer(self) -> int:
        """The most groups in flight or waiting."""
        most = (self.max_staleness + 1) * self.batch
        return most if self.buffer_limit is None else max(self.batch, self.buffer_limit)

    @property
    def groups_per_producer(self) -> int:
        """``in_flight``; if None, enough to keep every slot busy (a group stays open until its longest response ends), but at most an even
        share."""
        if self.in_flight is not None:
            return self.in_flight
        slots, part_of_full = self.workload.generation.slots, 0.0
        for share, part in open_shares(self.workload):
            size = part.num_generations
            part_of_full += share / (ceil(slots / size * longest_share(part.responses, size)) + (size > 1))
        return max(1, min(round(1 / part_of_full), ceil(self.buffer / self.producers)))

    @property
    def devices(self) -> float:
        """Devices that both roles occupy together."""
        w = self.workload
        parts = (self.producers * w.generation.producer_devices, self.trainers * w.update.trainer_devices)
        return max(parts) if self.colocated else sum(parts)

    @property
    def weight_update(self) -> WeightUpdate:
        """The time and traffic of an update of the weights."""
        w, (producers, trainers) = self.workload, self.cluster or (self.producers, self.trainers)
        return WeightUpdate(
            settings=w.weights,
            engines=producers,
            engine_devices=w.generation.producer_devices,
            trainer_devices=ceil(trainers * w.update.trainer_devices),
            colocated=self.colocated,
        )

    def update_seconds(self, tokens: float) -> float:
        """Return the seconds of an update on so many tokens. A response is never split, so trainers beyond the batch's responses add
        nothing."""
        update = self.workload.update
        working = min(self.trainers, self.responses)
        return update.update_seconds + update.token_seconds * tokens / working

    def schedule(self) -> ScheduleSettings:
        """Return the settings of the coordinator: a data set that never ends, and a filter that matches the simulated accuracies."""
        sources = tuple(
            SourceSchedule(
                name=part.name,
                weight=part.weight,
                prompts=self.batch * _EPISODE_BATCHES,
                n_sampled=part.num_generations,
                filter_range=_FILTER if part.filtered else None,
            )
            for part in self.workload.parts
        )
        return ScheduleSettings(
            sources=sources,
            train_batch_size=self.batch,
            buffer_limit=self.buffer,
            episodes=_ENDLESS,
            max_steps=self.max_steps,
            max_staleness=self.max_staleness,
            dynamic_batching=any(source.filter_range for source in sources),
            seed=self.seed,
        )

    def sliced(self, most_requests: int) -> tuple[Scenario, int]:
        """Return a cluster of the same proportions with about ``most_requests`` responses an update, and about how many of it make the
        whole.

        Producers are alike and share only the coordinator, so a slice has the period of the whole except for the longest response of a
        batch. A larger batch has a longer one, up to the cut. Below 16 producers nothing is sliced.
        """
        parts = min(round(self.responses) // max(1, most_requests), self.producers // 8)
        if parts < 2:
            return self, 1
        producers = round(self.producers / parts)
        share = producers / self.producers
        batch = max(1, round(self.batch * share))
        small = replace(
            self,
            producers=producers,
            trainers=self.trainers * share,
            train_batch_size=batch,
            buffer_limit=None if self.buffer_limit is None else round(self.buffer_limit * batch / self.batch),
            in_flight=self.groups_per_producer,
            cluster=(self.producers, self.trainers),
        )
        return small, parts


@lru_cache(maxsize=256)
def longest_share(lengths: Lengths, count: int) -> float:
    """Return the expected longest of ``count`` lengths, as a multiple of their mean."""
    return lengths.mean_longest_of(count) / lengths.mean


def open_shares(workload: Workload) -> list[tuple[float, SimulatedSource]]:
    """Return the sources, each after its share of the groups under way: a group is open until its longest response has ended."""
    longest = [part.response_tokens * longest_share(part.responses, part.num_generations) for part in workload.parts]
    opened = [share * tokens for (share, _), tokens in zip(workload.drawn, longest, strict=True)]
    return [(one / sum(opened), part) for one, part in zip(opened, workload.parts, strict=True)]
