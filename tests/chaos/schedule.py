"""Runs that suffer one fault after the other: the next one comes once the run is over the last one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.chaos.faults import Fault, Scene
from tests.chaos.watching import Mark, Run

__all__ = ["Row", "Suffering"]

_APART = 3
"""Updates between the end of one fault and the next."""
_SAID = ("warning:", "error:", "Traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one fault. ``without_a_step``: the longest time between two updates around it, less the median; ``twice``: updates that
    were made again; ``exit_code``: None if the driver lived on; ``wrong``: whether it is not what a user may expect."""

    schedule: str
    fault: str
    step: int
    came: str
    exit_code: int | None
    without_a_step: float
    twice: int
    said: str
    wrong: bool

    def as_json(self) -> dict[str, Any]:
        """For the last line."""
        return asdict(self)


class Suffering:
    """``limit``: seconds after which a run that is not over a fault counts as hanging; ``spacing``: updates that it must make after one."""

    def __init__(self, schedule: str, *, limit: float, spacing: int, say: Callable[[str], None]) -> None:
        self._schedule, self._limit, self._spacing, self._say = schedule, limit, spacing, say

    def rows(self, scene: Scene, faults: Sequence[Fault]) -> Iterator[Row]:
        """As many of the faults as the run is long; it ends by itself afterwards."""
        run = scene.run
        run.live(scene.address)
        self._made(run, 1)
        if run.exit_code is not None:
            raise RuntimeError("\n".join(["the run did not begin", *run.said(Mark(0, 0, 0, 0))[-20:]]))
        last = run.project.shape.updates - 2 * self._spacing
        for fault in faults:
            self._made(run, _APART)
            if fault.waits:  # until all are at work again: one that still loads holds nothing
                self._until(lambda: run.working() >= run.project.shape.producers or run.step > last or run.exit_code is not None)
            if run.step > last or run.exit_code is not None:
                return
            row, over = self._suffer(scene, fault)
            if run.exit_code == 0 and not over:
                return  # it ended too early to show anything: the fault comes again in the next run
            yield row
            if fault.last:
                return

    def finish(self, run: Run) -> int:
        """Wait for the end; the exit code, 124 if it makes no more steps."""
        while self._made(run, 1) and run.exit_code is None:
            continue
        code = run.exit_code
        return 124 if code is None else code

    def _made(self, run: Run, updates: int) -> bool:
        """Wait until it has made so many more, or ended; False if it does neither."""
        wanted = len(run.seen) + updates
        return self._until(lambda: len(run.seen) >= wanted or run.exit_code is not None)

    def _until(self, true: Callable[[], bool]) -> bool:
        end = time.monotonic() + self._limit
        while not true():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _suffer(self, scene: Scene, fault: Fault) -> tuple[Row, bool]:
        """What came of it; whether the run was seen to be over it."""
        run, mark = scene.run, scene.run.mark()
        self._say(f"{self._schedule}, step {mark.step}: {fault.name}")
        noticed = fault.inject(scene)

        def well() -> bool:
            return len(run.seen) >= mark.made + self._spacing and run.step > mark.step and noticed()

        def over() -> bool:
            return run.exit_code is not None or well()

        came = "" if self._until(over) else self._helped(scene, fault, mark, over)
        seen_well = well()
        said, code = run.said(mark), run.exit_code
        fault.mend(scene)
        if code not in (None, 0):
            came += ("; " if came else "") + self._again(scene)
        row = Row(
            schedule=self._schedule,
            fault=fault.name,
            step=mark.step,
            came=came or "continues",
            exit_code=code,
            without_a_step=round(max(0.0, run.gap(mark) - run.median), 1),
            twice=run.twice(mark),
            said=" / ".join([line for line in said if line.startswith(_SAID)][-3:]),
            wrong=self._wrong(fault, came, code, said),
        )
        self._say(f"  {row.came}; exit code {code}; {row.without_a_step} s without a step; {row.twice} twice; {row.said}")
        return row, seen_well

    @staticmethod
    def _wrong(fault: Fault, came: str, code: int | None, said: Sequence[str]) -> bool:
        """A run goes on by itself, or ends as it is expected to, with one sentence and no traceback."""
        if any(line.startswith("Traceback") for line in said):
            return True
        if not fault.ends:
            return came != "" or code is not None
        sentences = sum(line.startswith("error:") for line in said)
        return came != "ends; the same command resumes" or (code, sentences) not in {(1, 1), (-signal.SIGKILL, 0), (130, 0)}

    def _helped(self, scene: Scene, fault: Fault, mark: Mark, over: Callable[[], bool]) -> str:
        """What is wrong with a run that is not over the fault; then its victim is killed, and if that does not help, its driver."""
        run = scene.run
        what = "not noticed" if len(run.seen) >= mark.made + self._spacing else f"hangs after {len(run.seen) - mark.made} updates"
        came = f"{what} ({self._limit:.0f} s)"
        for process in scene.hurt:
            process.signal(signal.SIGKILL)
        if not fault.ends and self._until(over):
            return came
        run.kill()
        return came if fault.ends else f"{came}, also once it was killed"

    def _again(self, scene: Scene) -> str:
        """The same command once more."""
        run = scene.run
        mark = run.mark()
        run.live(scene.address)
        if not self._made(run, self._spacing):
            run.kill()
            return "ends; the same command hangs"
        if run.exit_code not in (None, 0):
            return f"ends; the same command ends with {run.exit_code}: {' '.join(run.said(mark)[-1:])}"
        return "ends; the same command resumes"
