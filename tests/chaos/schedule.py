"""Runs that suffer one fault after the other: the next one comes when the run is over the last one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.chaos.faults import Fault, Scene
from tests.chaos.watching import Mark, Run

__all__ = ["Row", "Suffering"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one fault. ``came``: goes on, ends (and was begun again), hangs."""

    schedule: str
    fault: str
    step: int
    came: str
    exit_code: int | None
    without_a_step: float
    twice: int
    said: str
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        """For the last line."""
        return asdict(self)


class Suffering:
    """``limit``: seconds after which a fault that the run is not over counts as hanging; ``spacing``: updates that it must have made since."""

    def __init__(self, schedule: str, *, limit: float, spacing: int, say: Callable[[str], None]) -> None:
        self._schedule, self._limit, self._spacing, self._say = schedule, limit, spacing, say

    def rows(self, scene: Scene, faults: Sequence[Fault]) -> Iterator[Row]:
        """As many of the faults as the run is long; it ends by itself afterwards."""
        scene.run.live(self._address(scene))
        self._until(lambda: scene.run.step >= 1 or scene.run.exit_code is not None, scene)
        if scene.run.exit_code is not None:
            raise RuntimeError("\n".join(["the run did not begin", *scene.run.said(Mark(0, 0, 0, 0))[-20:]]))
        last = scene.run.project.shape.updates - 2 * self._spacing
        for fault in faults:
            self._until(lambda start=scene.run.step: scene.run.step >= start + 3 or scene.run.exit_code is not None, scene)  # type: ignore[misc]
            if scene.run.step > last or scene.run.exit_code is not None:
                return
            yield self._suffer(scene, fault)

    def finish(self, scene: Scene) -> int:
        """Wait for the end; the exit code, 124 if it does not come."""
        made = -1
        while scene.run.exit_code is None and made != (made := len(scene.run.seen)):
            self._until(lambda: scene.run.exit_code is not None, scene)
        code = scene.run.exit_code
        return 124 if code is None else code

    @staticmethod
    def _address(scene: Scene) -> str | None:
        return scene.cluster.address if scene.cluster is not None else None

    def _until(self, true: Callable[[], bool], scene: Scene, seconds: float = 0.0) -> bool:
        end = time.monotonic() + (seconds or self._limit)
        while not true():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _suffer(self, scene: Scene, fault: Fault) -> Row:
        run, mark = scene.run, scene.run.mark()
        self._say(f"{self._schedule}: step {mark.step}: {fault.name}")
        try:
            noticed = fault.inject(scene)
        except LookupError as error:
            return self._row(fault, mark, run, f"not done: {error}", None)
        mended = False

        def over() -> bool:
            return len(run.seen) >= mark.made + self._spacing and run.step > mark.step and noticed() and (mended or not fault.ends)

        self._until(lambda: over() or run.exit_code is not None, scene)
        came, code = "goes on", run.exit_code
        words = self._words(run.said(mark))
        if code is None and not over():
            went_on = len(run.seen) - mark.made
            came = "hangs" if went_on < self._spacing else "not noticed"
            came += f" ({self._limit:.0f} s)"
            words = words or f"{went_on} steps made"
            for process in scene.hurt:
                process.signal(signal.SIGKILL)
            if not fault.ends:
                fault.mend(scene)
                mended = True
                self._until(lambda: over() or run.exit_code is not None, scene)
                if run.exit_code is None and not over():
                    came += ", also once it was killed"
            if run.exit_code is None and not over():
                run.process.kill()
                run.process.wait()
        if run.exit_code not in (None, 0):
            if came == "goes on":
                came = "ends"
            code = run.exit_code if code is None else code
            if not mended:
                fault.mend(scene)
                mended = True
            again = run.mark()
            run.live(self._address(scene))
            made = len(run.seen)
            self._until(lambda: len(run.seen) >= made + self._spacing or run.exit_code is not None, scene)
            came += "; the same command goes on" if run.exit_code in (None, 0) else f"; the same command ends with {run.exit_code}: {self._words(run.said(again))}"
        elif not mended:
            fault.mend(scene)
        return self._row(fault, mark, run, came, code, words)

    def _row(self, fault: Fault, mark: Mark, run: Run, came: str, code: int | None, words: str = "") -> Row:
        row = Row(
            schedule=self._schedule,
            fault=fault.name,
            step=mark.step,
            came=came,
            exit_code=code,
            without_a_step=round(max(0.0, run.gap(mark) - run.median), 1),
            twice=run.twice(mark),
            said=words,
        )
        self._say(f"  {row.came}; exit code {row.exit_code}; {row.without_a_step} s without a step; {row.twice} twice; {row.said}")
        return row

    @staticmethod
    def _words(lines: list[str]) -> str:
        told = [line for line in lines if line.startswith(("warning:", "error:", "Traceback"))]
        return " / ".join(told[-3:])
