"""Accounting of a worker's time: every second belongs to exactly one activity, so that the shares add up to the elapsed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock, get_ident

from rlcore.contracts.public_members import EnumMembers

__all__ = ["IDLE", "Role", "Span", "TimeAccount", "Timeline", "WorkerTime"]

IDLE = "idle"
"""The activity outside every span."""
RESOLUTION = 1e-3
"""Seconds: spans of one activity that are closer than this are drawn as one."""
MOST_SPANS = 512
"""The most spans that an account keeps between two reports."""


class Role(StrEnum, metaclass=EnumMembers):
    """The role of a worker."""

    TRAINER = "trainer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one activity: ``start`` in seconds since 1970, ``seconds`` long. ``Span("generation", 1_767_225_600.0, 0.25)``"""

    activity: str
    start: float
    seconds: float

    @property
    def end(self) -> float:
        """End in seconds since 1970."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """The activities of a worker since its last report.

    ``seconds``: by activity, ``idle`` included. They are exact and sum to the elapsed time.
    ``spans``: for drawing, in order and without overlap, without idle ones, and bounded in number (``Timeline``).
    ``peak_memory_bytes``: of the worker's process since its start; 0 if that is the driver's process.
    """

    worker: str
    role: Role
    seconds: Mapping[str, float]
    spans: tuple[Span, ...] = ()
    peak_memory_bytes: int = 0


class Timeline:
    """Spans of one worker in order, at most ``limit`` of them however many are added.

    A new span extends the last span of its activity if that ended less than ``resolution`` seconds before. Spans between the two are
    shorter than that and are not drawn. If there would be more than ``limit`` spans, the resolution doubles until at most half of the limit
    are left. Therefore the spans of an activity differ from its recorded time by less than one resolution for each joined span.
    """

    def __init__(self, limit: int = MOST_SPANS, resolution: float = RESOLUTION) -> None:
        self.limit = limit
        self.resolution = resolution
        self._spans: list[tuple[str, float, float]] = []  # activity, start, end

    def add(self, activity: str, start: float, end: float) -> None:
        """Add a span that does not start before the last one."""
        if end <= start:
            return
        self._join(activity, start, end)
        if len(self._spans) > self.limit:
            self._coarsen()

    def spans(self) -> tuple[Span, ...]:
        """Return the spans in order; no two overlap."""
        return tuple(Span(activity, start, end - start) for activity, start, end in self._spans)

    def _join(self, activity: str, start: float, end: float) -> None:
        place = len(self._spans) - 1
        while place >= 0 and start - self._spans[place][2] < self.resolution:
            if self._spans[place][0] == activity:
                self._spans[place:] = [(activity, self._spans[place][1], end)]
                return
            place -= 1
        self._spans.append((activity, start, end))

    def _coarsen(self) -> None:
        while len(self._spans) > max(1, self.limit // 2):
            # # Once the whole line is shorter than the resolution, at most one span per activity is left, and a coarser drawing would not
            # have fewer.
            whole = self._spans[-1][2] - self._spans[0][1]
            self.resolution *= 2
            spans, self._spans = self._spans, []
            for span in spans:
                self._join(*span)
            if self.resolution > 2 * whole:
                return


class TimeAccount:
    """The time of one worker, in seconds. Spans nest; the time of an inner span does not count for the outer one.

    >>> account = TimeAccount()
    >>> with account.span("generation"):
    ...     with account.span("weights"):
    ...         pass
    >>> sorted(account.report("producer-0", Role.PRODUCER).seconds)
    ['generation', 'idle', 'weights']

    Spans belong to the thread that does the work; any thread may call the other methods.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """Start an account.

        :param clock: returns seconds and never runs backwards.
        :param wall: returns seconds since 1970. It is read once, so that setting the system clock does not move spans.
        """
        self._clock = clock
        self._lock = Lock()
        self._open: list[str] = []
        self._thread = 0
        self._seconds = {IDLE: 0.0}
        self._timeline = Timeline()
        self._since = clock()
        self._epoch = wall() - self._since

    @contextmanager
    def span(self, activity: str) -> Iterator[None]:
        """Record the time inside the context for ``activity``, also if an exception leaves it.

        Raise ValueError for an empty name, or while another thread has a span open: the times of two threads would not add up.
        """
        if not activity:
            raise ValueError("a span needs the name of an activity")
        with self._lock:
            if self._open and self._thread != get_ident():
                raise ValueError(f"span {activity!r}: another thread is inside {self._open[-1]!r}; one account is for one thread at a time")
            self._book(self._clock())
            self._thread = get_ident()
            self._open.append(activity)
        try:
            yield
        finally:
            with self._lock:
                self._book(self._clock())
                self._open.pop()

    def report(self, worker: str, role: Role, until: float | None = None) -> WorkerTime:
        """Return the activities since the last report, including the time of open spans up to now. Open spans stay open.

        :param until: a moment of the clock in place of now. With it several accounts can report up to the same moment, or up to the
            boundary of a later span. Time that is already recorded stays.
        """
        with self._lock:
            self._book(self._clock() if until is None else max(until, self._since))
            timeline, self._timeline = self._timeline, Timeline()
            seconds, self._seconds = self._seconds, {IDLE: 0.0}
            return WorkerTime(worker=worker, role=role, seconds=seconds, spans=timeline.spans())

    def _book(self, now: float) -> None:
        """Record the time since the last record for the innermost open span."""
        activity = self._open[-1] if self._open else IDLE
        self._seconds[activity] = self._seconds.get(activity, 0.0) + now - self._since
        if activity != IDLE:
            self._timeline.add(activity, self._epoch + self._since, self._epoch + now)
        self._since = now
