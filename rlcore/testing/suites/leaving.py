"""Rules of the end: an engine that is closed is gone."""

from __future__ import annotations

import time

from rlcore.testing.leftovers import Leftovers
from rlcore.testing.overdue import within
from rlcore.testing.suites.engine import EngineSuite

__all__ = ["LeavingRules"]


class LeavingRules(EngineSuite):
    """The end."""

    def test_close_with_requests_in_flight(self) -> None:
        """``close`` is called also after an error."""
        with self.fresh() as engine:
            engine.submit(self.requests(4))
            engine.poll(0.0)

    def test_close_leaves_nothing_behind(self) -> None:
        """Of an engine that has served and updated no process, no listening port and no shared memory is left after ``closing_seconds``."""
        if not Leftovers.known():
            self.skip("this machine has no /proc to ask")
        type(self).teardown_class()  # an engine may free what all engines of the process share only when the last one is closed
        leftovers = Leftovers()
        engine = self._made(8)
        try:
            leftovers.look()
            self.update(engine, 1, 1)
            self.run(engine, self.requests(2, max_new_tokens=2))
            leftovers.look()
        finally:
            with within(self.deadline, "close"):
                engine.close()
        until = time.monotonic() + self.closing_seconds
        while (found := leftovers.found()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not found, f"{self.closing_seconds:g} s after close there is still {found[0]}, of {len(found)} left in all"
