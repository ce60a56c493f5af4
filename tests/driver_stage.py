"""A driver for tests that play the workers: what they answer is heard before the next line of the test runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rlcore_plugin_workers.driver_loop import DriverLoop

__all__ = ["DriverStage", "driver_stage"]

T = TypeVar("T")


class DriverStage:
    """``driver``, and what it ``said``."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.driver = DriverLoop(self.said.append)

    def make(self, kind: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call something in the driver's loop."""

        async def made() -> T:
            return kind(*arguments, **named)

        return self.driver.run(made())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """``DriverLoop.run``."""
        return self.driver.run(work)

    def drain(self) -> None:
        """Wait until all that was answered is heard; raise what it led to."""

        async def turns() -> None:
            for _ in range(20):  # more than anything here takes from an answer to what comes of it
                await asyncio.sleep(0.001)

        self.driver.run(turns())

    def until(self, happened: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until it has happened; raise what an error that is watched leads to."""
        limit = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < limit
            self.drain()


@contextmanager
def driver_stage() -> Iterator[DriverStage]:
    """One that is closed at the end."""
    stage = DriverStage()
    try:
        yield stage
    finally:
        stage.driver.close()
