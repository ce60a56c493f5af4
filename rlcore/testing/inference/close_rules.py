"""Rules of closing an engine."""

from __future__ import annotations

import time

from rlcore.testing.inference.engine_suite import EngineSuite
from rlcore.testing.leftovers import Leftovers
from rlcore.testing.time_limit import within

__all__ = ["CloseRules"]


class CloseRules(EngineSuite):
    """The end of an engine."""

    def test_close_with_requests_in_flight(self) -> None:
        """``close`` can be called with requests in flight."""
        with self.fresh() as engine:
            engine.submit(self.requests(4))
            engine.poll(0.0)

    def test_close_leaves_nothing_behind(self) -> None:
        """``closing_seconds`` after ``close`` the engine has left no process, listening port or shared memory."""
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
