"""A producer's inference engine under a virtual clock: continuous batching as processor sharing.

All running requests advance together, one token a decode step; the length of a step depends on their number. One number, the tokens decoded
by a hypothetical request that always runs, therefore orders all ends. Starting or ending a request costs O(log slots), and nothing is
stepped token by token.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rlcore_plugin_tools.plan.workload_model import GenerationSection

__all__ = ["Engine", "Work"]

_TOUCHING = 1e-9


@dataclass(slots=True, eq=False)
class Work:
    """One group in generation: the tokens of each response, and how many responses still run or wait."""

    lease_id: int
    prompt_tokens: float
    lengths: list[float]
    open: int
    """Responses that have not been handed over."""
    source: int = 0
    version: int = -1
    """The version that the engine served when the first of its responses began; -1 until then."""
    decoded: float = 0.0
    """Tokens of the responses that ended."""

    @property
    def tokens(self) -> float:
        """The tokens that an update on it processes: every response behind its prompt."""
        return sum(self.lengths) + self.prompt_tokens * len(self.lengths)


class Engine:
    """One engine. Times are seconds of the simulation; the caller never goes back in time."""

    __slots__ = (
        *(
            "_at",
            "_count",
            "_each",
            "_ended",
            "_paused",
            "_prefill",
            "_running",
            "_served",
            "_slots",
            "_step",
            "_waiting",
            "_whole_batches",
        ),
        *("busy", "serving", "slot_seconds", "tokens"),
    )

    def __init__(self, settings: GenerationSection) -> None:
        self._step = settings.step_seconds
        self._each = settings.request_seconds
        self._slots = settings.slots
        self._prefill = 1.0 / settings.prefill_tokens_per_second
        self._whole_batches = settings.batching == "batch"
        self._ended: list[Work] = []  # the group of each response that waits for the longest of its batch
        self.serving = 0
        """The version of the weights."""
        self._at = 0.0
        self._paused = 0.0
        self._served = 0.0
        self._count = 0
        self._running: list[tuple[float, int, float, Work]] = []
        self._waiting: deque[tuple[float, Work]] = deque()
        self.busy = 0.0
        """Seconds with at least one request running."""
        self.slot_seconds = 0.0
        """Seconds of running requests, summed over slots."""
        self.tokens = 0.0
        """Tokens decoded."""

    @property
    def running(self) -> int:
        """The number of requests in slots."""
        return len(self._running)

    def advance(self, now: float) -> None:
        """Decode until ``now``, which must not be later than ``next_end``."""
        running = len(self._running)
        if running:
            elapsed = now - self._at
            self.busy += elapsed
            self.slot_seconds += elapsed * running
            decoding = now - max(self._at, self._paused)
            if decoding > 0:
                served = decoding / (self._step + self._each * running)
                self._served += served
                self.tokens += served * running
        self._at = now

    def pause(self, now: float, seconds: float) -> None:
        """Stop decoding for ``seconds`` (prefill, a swap of weights), after earlier pauses."""
        self.advance(now)
        self._paused = max(self._paused, now) + seconds

    def submit(self, now: float, groups: Iterable[Work]) -> None:
        """Prefill these groups and start their requests as slots become free."""
        prefill = 0.0
        for work in groups:
            prefill += work.prompt_tokens
            self._waiting.extend((length, work) for length in work.lengths)
        self.pause(now, prefill * self._prefill)
        if not (self._whole_batches and self._running):
            self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            length, work = self._waiting.popleft()
            self._count += 1
            if work.version < 0:
                work.version = self.serving
            heapq.heappush(self._running, (self._served + length, self._count, length, work))

    def next_end(self) -> float | None:
        """Return when the next request ends; None if none runs."""
        if not self._running:
            return None
        left = max(0.0, self._running[0][0] - self._served)
        return max(self._at, self._paused) + left * (self._step + self._each * len(self._running))

    def end(self, now: float) -> list[Work]:
        """End the requests that are due at ``next_end``, refill the slots, and return the groups that became complete."""
        self.advance(now)
        due = max(self._served, self._running[0][0])
        self.tokens += (due - self._served) * len(self._running)
        self._served = due
        ended = self._ended
        while self._running and self._running[0][0] <= due + _TOUCHING:
            _, _, length, work = heapq.heappop(self._running)
            work.decoded += length
            ended.append(work)
        if self._whole_batches and self._running:
            return []
        self._ended = []
        self._fill()
        if not self._running:
            self._served = 0.0  # a fresh start keeps the sums small, and with them the rounding
        return _handed_over(ended)

    def die(self, now: float) -> float:
        """Drop all requests; return the number of decoded tokens of unfinished requests."""
        self.advance(now)
        lost = sum(length - (end - self._served) for end, _, length, _ in self._running)
        self._running.clear()
        self._waiting.clear()
        self._ended = []
        self._served = 0.0
        self._paused = now
        return lost


def _handed_over(ended: Iterable[Work]) -> list[Work]:
    """Return the groups that these responses complete."""
    whole = []
    for work in ended:
        work.open -= 1
        if work.open == 0:
            whole.append(work)
    return whole
