"""The time that a gateway adds to the calls of an episode beyond the engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TimedApp", "figures", "note_engine"]


@dataclass(slots=True)
class _Clock:
    """A request: the seconds that the engine took for it, and the list that its milliseconds beyond the engine belong to."""

    engine: float = 0.0
    kept: list[float] | None = field(default=None)


_CLOCK: ContextVar[_Clock] = ContextVar("_CLOCK")


class TimedApp:
    """An ASGI application around another one, which measures each request from its arrival to the end of its response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        clock, began = _Clock(), perf_counter()
        token = _CLOCK.set(clock)
        try:
            await self._app(scope, receive, send)
        finally:
            _CLOCK.reset(token)
            if clock.kept is not None:
                clock.kept.append(1000 * max(0.0, perf_counter() - began - clock.engine))


def note_engine(seconds: float, kept: list[float]) -> None:
    """Note that the engine took so many seconds for the present request, whose milliseconds beyond that are to be added to ``kept``."""
    if (clock := _CLOCK.get(None)) is not None:
        clock.engine, clock.kept = seconds, kept


def figures(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the mean and the largest time of an episode's calls; nothing if there were none."""
    return {"gateway_ms": fmean(milliseconds), "gateway_ms_max": max(milliseconds)} if milliseconds else {}
