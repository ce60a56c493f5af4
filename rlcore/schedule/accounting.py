"""Where a worker's seconds go: every one of them belongs to exactly one activity, so that the shares add up to the time elapsed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock, get_ident

__all__ = ["IDLE", "Role", "Span", "TimeAccount", "Timeline", "WorkerTime"]

IDLE = "idle"
"""The activity outside every span."""
RESOLUTION = 1e-3
"""Seconds: spans of one activity that are nearer to each other are drawn as one."""
MOST_SPANS = 512
"""That an account keeps between two reports."""


class Role(StrEnum):
    """What a worker is for."""

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
        """In seconds since 1970."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """What a worker did since its last report. ``seconds`` by activity are exact, ``idle`` among them, and sum to the time elapsed;
    ``spans``, in order and apart, are for drawing, without the idle ones, and bounded in number (``Timeline``). ``peak_memory_bytes``: of
    its process since that started; 0 if it is the driver's."""

    worker: str
    role: Role
    seconds: Mapping[str, float]
    spans: tuple[Span, ...] = ()
    peak_memory_bytes: int = 0


class Timeline:
    """Spans of one worker in order, at most ``limit`` of them however many are added.

    A span continues the last one of its activity where that ended less than ``resolution`` seconds before; what stood between them is
    shorter than that and not drawn. Where there would be more than ``limit`` spans, the resolution doubles until half as many are left.
    So the spans of an activity differ from the time booked to it by less than a resolution for each span that was joined.
    """

    def __init__(self, limit: int = MOST_SPANS, resolution: float = RESOLUTION) -> None:
        self.limit = limit
        self.resolution = resolution
        self._spans: list[tuple[str, float, float]] = []  # activity, start, end

    def add(self, activity: str, start: float, end: float) -> None:
        """One more span, not before the last one."""
        if end <= start:
            return
        self._join(activity, start, end)
        if len(self._spans) > self.limit:
            self._coarsen()

    def spans(self) -> tuple[Span, ...]:
        """In order; no two overlap."""
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
            # Once all of it lies within a resolution, what is left is a span an activity at most, and no coarser drawing has fewer.
            whole = self._spans[-1][2] - self._spans[0][1]
            self.resolution *= 2
            spans, self._spans = self._spans, []
            for span in spans:
                self._join(*span)
            if self.resolution > 2 * whole:
                return


class TimeAccount:
    """One worker's time, in seconds. Spans nest, and the inner one's time is not the outer one's too.

    >>> account = TimeAccount()
    >>> with account.span("generation"):
    ...     with account.span("weights"):
    ...         pass
    >>> sorted(account.report("producer-0", Role.PRODUCER).seconds)
    ['generation', 'idle', 'weights']

    Spans belong to the thread that does the work; the other methods may be called from any.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """``clock``: seconds, never running backwards; ``wall``: seconds since 1970, read once, so that setting it moves no span."""
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
        """Books the time inside to ``activity``, also when an exception leaves it.

        Raises ValueError for an empty name, or while another thread has a span open: the time of two threads would not add up.
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
        """What happened since the last report, open spans up to now; they stay open. ``until``: a moment of the clock in place of now, so
        that several accounts report up to the same one, or to where a later span ended or began meanwhile: no time is taken back."""
        with self._lock:
            self._book(self._clock() if until is None else max(until, self._since))
            timeline, self._timeline = self._timeline, Timeline()
            seconds, self._seconds = self._seconds, {IDLE: 0.0}
            return WorkerTime(worker=worker, role=role, seconds=seconds, spans=timeline.spans())

    def _book(self, now: float) -> None:
        """Books the time since the last booking to the innermost open span."""
        activity = self._open[-1] if self._open else IDLE
        self._seconds[activity] = self._seconds.get(activity, 0.0) + now - self._since
        if activity != IDLE:
            self._timeline.add(activity, self._epoch + self._since, self._epoch + now)
        self._since = now
