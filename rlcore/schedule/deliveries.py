"""What goes into the coordinator and comes out of it: numbers, names and closed sets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Admission", "Delivery", "Status", "TrainOrder", "Verdict", "WaitingFor"]


class Verdict(StrEnum):
    """What became of a delivered group."""

    KEPT = "kept"
    """It will be trained: keep its payload."""
    MASKED = "masked"
    """Filtered, but it keeps its place in a batch, in the statistics and not in the loss: keep its payload."""
    FILTERED = "filtered"
    """Filtered and replaced: drop its payload."""
    FAILED = "failed"
    """Recorded as failed: drop its payload."""
    UNKNOWN = "unknown"
    """Its lease is no longer held (it ended, or its prompt was given to somebody else): drop its payload."""

    @property
    def kept(self) -> bool:
        """True where the payload must be kept until its batch is trained."""
        return self in (Verdict.KEPT, Verdict.MASKED)


class WaitingFor(StrEnum):
    """Why ``next_batch`` gives nothing."""

    NOTHING = "nothing"
    """It would give a batch now."""
    GROUPS = "groups"
    """Too few groups are ready."""
    STRAGGLERS = "stragglers"
    """Enough are ready, but leaving without those in flight would push one of them over the staleness bound."""
    UPDATE = "update"
    """A batch is being trained."""
    END = "end"
    """The run is finished."""


class Admission(StrEnum):
    """Whether ``lease`` would grant something, or what forbids it."""

    OPEN = "open"
    STALENESS = "staleness"
    """More would be older than allowed when their turn comes: producers wait for the trainer."""
    BUFFER = "buffer"
    """As many groups are in flight and ready as the buffer may hold: back-pressure."""
    EXHAUSTED = "exhausted"
    """No prompt is left to ask for, unless one is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A group is complete and judged. Its payload stays where it is; only this travels.

    ``version`` is the smallest version of its tokens (its lease's where it has none), ``accuracy`` the group's mean over
    ``in_statistics`` of the reward that the filter reads, ``failed`` the reason where no rollout could be judged: a short phrase from a
    small set, because the ledger counts by it.
    """

    lease_id: int
    version: int
    accuracy: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOrder:
    """Train these now: the update ``version`` -> ``version + 1``.

    ``lease_ids`` in canonical order (episode, position in the episode's order); ``versions`` of these groups, in the same order;
    ``masked``: those that count in the statistics and not in the loss.
    """

    version: int
    lease_ids: tuple[int, ...]
    versions: tuple[int, ...]
    masked: frozenset[int] = frozenset()

    @property
    def staleness(self) -> int:
        """Updates between the oldest token and this one."""
        return self.version - min(self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where the schedule stands. Groups: ``in_flight`` leased, ``buffered`` ready, ``taken`` in the batch being trained, ``set_aside``
    those of a void batch (ready, but outside the buffer's bound until the next batch); prompts: ``given_back`` wait for a new lease.
    """

    version: int
    finished: bool
    trained: int
    filtered: int
    failed: int
    buffered: int
    in_flight: int
    taken: int
    set_aside: int
    given_back: int
    waiting_for: WaitingFor
    stragglers: tuple[int, ...]
    """Lease ids in flight that the barrier waits for, oldest first."""
    admission: Admission
