"""The report of a simulation: sums taken at two moments, and the figures of the time between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Figures", "SourceFigures", "SourceSums", "Sums", "figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSums:
    """The ledger of one source from the start of a run, and the tokens of its groups that were generated."""

    issued: int
    trained: int
    filtered: int
    failed: int
    reissued: int
    decoded_tokens: float


@dataclass(slots=True)
class Sums:
    """Everything counted from the start of a run until ``time``."""

    time: float = 0.0
    updates: int = 0
    groups: int = 0
    response_tokens: float = 0.0
    trainer_busy: float = 0.0
    publishing: float = 0.0
    taking: float = 0.0
    producers_busy: float = 0.0
    producers_down: float = 0.0
    slot_seconds: float = 0.0
    decoded_tokens: float = 0.0
    lost_tokens: float = 0.0
    failures: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    sources: list[SourceSums] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """What a run spends on one source.

    - ``trained``: its share of the groups that were trained; ``decoded``: of the tokens of all groups that were generated.
    - ``filtered``: its groups that the filter removed during the measurement.
    - ``ledger``: how its prompts ended since the start of the run, in numbers of prompts.
    """

    trained: float
    decoded: float
    filtered: int
    ledger: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Rates per second of virtual time, and shares between 0 and 1.

    - ``tokens_per_second``: response tokens that were trained; ``decoded_per_second``: all that were generated.
    - ``producers_busy``: share of time with at least one request running; ``slot_use``: share of slots in use.
    - ``bubble``: share of time in which the trainers do not train; ``publishing``: the part of it in which they stall to publish weights.
    - ``taking``: share of the producers' time in which they stall to take new weights.
    - ``devices_idle``: share of time in which nothing ran on the devices of the roles; a device of neither role does not count.
    - ``staleness``: share of groups by the number of updates between their weights and their training.
    - ``lost``: share of decoded tokens that were lost with their producer.
    - ``sources``: by name, in a run with several.
    """

    seconds: float
    updates: int
    updates_per_second: float
    groups_per_second: float
    tokens_per_second: float
    decoded_per_second: float
    trainer_busy: float
    producers_busy: float
    producers_down: float
    slot_use: float
    bubble: float
    publishing: float
    taking: float
    devices_idle: float
    staleness_mean: float
    staleness_max: int
    staleness: dict[int, float]
    lost: float
    failures: int
    peak_buffer: int
    events: int
    sources: dict[str, SourceFigures]

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the keys of ``staleness`` become text."""
        return {**asdict(self), "staleness": {str(age): share for age, share in self.staleness.items()}}


def figures(
    before: Sums,
    after: Sums,
    *,
    producers: int,
    slots: int,
    device_shares: tuple[float, float],
    peak_buffer: int,
    events: int,
    names: Sequence[str] = (),
) -> Figures:
    """Return the figures between two sums. ``device_shares``: producers' and trainers' devices over all devices (both 1 if they share
    them). ``names``: of the sources."""
    seconds = after.time - before.time
    updates = after.updates - before.updates
    ages = after.staleness - before.staleness
    groups = max(1, ages.total())
    of_producers = seconds * producers
    trainer = (after.trainer_busy - before.trainer_busy) / seconds
    busy = (after.producers_busy - before.producers_busy) / of_producers
    decoded = after.decoded_tokens - before.decoded_tokens
    return Figures(
        seconds=seconds,
        updates=updates,
        updates_per_second=updates / seconds,
        groups_per_second=(after.groups - before.groups) / seconds,
        tokens_per_second=(after.response_tokens - before.response_tokens) / seconds,
        decoded_per_second=decoded / seconds,
        trainer_busy=trainer,
        producers_busy=busy,
        producers_down=(after.producers_down - before.producers_down) / of_producers,
        slot_use=(after.slot_seconds - before.slot_seconds) / (of_producers * slots),
        bubble=1 - trainer,
        publishing=(after.publishing - before.publishing) / seconds,
        taking=(after.taking - before.taking) / of_producers,
        devices_idle=1 - device_shares[0] * busy - device_shares[1] * trainer,
        staleness_mean=sum(age * count for age, count in ages.items()) / groups,
        staleness_max=max(ages, default=0),
        staleness={age: count / groups for age, count in sorted(ages.items())},
        lost=(after.lost_tokens - before.lost_tokens) / decoded if decoded else 0.0,
        failures=after.failures - before.failures,
        peak_buffer=peak_buffer,
        events=events,
        sources=_by_source(names, before.sources, after.sources) if names else {},
    )


def _by_source(names: Sequence[str], before: Sequence[SourceSums], after: Sequence[SourceSums]) -> dict[str, SourceFigures]:
    trained = [now.trained - then.trained for then, now in zip(before, after, strict=True)]
    decoded = [now.decoded_tokens - then.decoded_tokens for then, now in zip(before, after, strict=True)]
    return {
        name: SourceFigures(
            trained=groups / (sum(trained) or 1),
            decoded=tokens / (sum(decoded) or 1.0),
            filtered=now.filtered - then.filtered,
            ledger={key: getattr(now, key) for key in ("issued", "trained", "filtered", "failed", "reissued")},
        )
        for name, groups, tokens, then, now in zip(names, trained, decoded, before, after, strict=True)
    }
