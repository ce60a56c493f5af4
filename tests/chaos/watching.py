"""One run, however many lives it has: when each line of its metrics came, what its driver said, whether it still lives."""

from __future__ import annotations

import json
import statistics
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.processes import Process
from tests.chaos.project import Project

__all__ = ["Mark", "Run"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a run: seconds, its last step, how many steps it had made by then, bytes that it had said."""

    moment: float
    step: int
    made: int
    said: int


class Run:
    """``name``: its project. A context: a thread watches its metrics; on leaving its driver is killed if it still lives."""

    def __init__(self, project: Project, name: str) -> None:
        self.project, self.name = project, name
        self.log = project.folder / f"{name}.log"
        self.log.touch()
        self.seen: list[tuple[float, int]] = []
        """(moment, step) of every update, in the order in which they were written: those that were made again stand twice."""
        self.lives = 0
        self._position = 0
        self._inode = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Run:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.lives and self.exit_code is None:
            self.kill()
        self._over.set()
        self._thread.join()

    def live(self, address: str | None) -> None:
        """Start its driver: the first one, or the next."""
        self.lives += 1
        self.process = self.project.start(self.name, self.log, address)

    def kill(self) -> None:
        """End its driver."""
        self.process.kill()
        self.process.wait()

    @property
    def driver(self) -> Process:
        """Its process."""
        return Process(self.process.pid, 0, "", "the driver")

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self.process.poll()

    @property
    def step(self) -> int:
        """The last update that it wrote down."""
        return self.seen[-1][1] if self.seen else 0

    def working(self) -> int:
        """How many producers had a part in the last update."""
        folder = self.project.run_folder(self.name)
        path = folder / "times.jsonl" if folder is not None else None
        if path is None or not path.exists():
            return 0
        rows = path.read_bytes().splitlines(keepends=True)
        last = next((json.loads(row)["workers"] for row in reversed(rows) if row.endswith(b"\n")), ())
        return sum(name.startswith("producer-") for name in last)

    def mark(self) -> Mark:
        """Now."""
        return Mark(time.monotonic(), self.step, len(self.seen), self.log.stat().st_size)

    def said(self, since: Mark) -> list[str]:
        """The lines of the driver from then on."""
        with self.log.open("rb") as lines:
            lines.seek(since.said)
            return [line.rstrip() for line in lines.read().decode(errors="replace").splitlines()]

    def twice(self, since: Mark) -> int:
        """Updates from then on that had been made before."""
        return sum(step <= max((before for _, before in self.seen[:place]), default=0) for place, (_, step) in self._after(since))

    def gap(self, since: Mark) -> float:
        """The longest time between two lines of which the second came after then; it counts until now."""
        moments = [moment for moment, _ in self.seen[max(0, since.made - 1) :]]
        if self.exit_code != 0:
            moments.append(time.monotonic())
        return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)

    @property
    def median(self) -> float:
        """Seconds of a step."""
        moments = [moment for moment, _ in self.seen]
        return statistics.median([later - earlier for earlier, later in pairwise(moments)] or [0.0])

    def _after(self, since: Mark) -> list[tuple[int, tuple[float, int]]]:
        return list(enumerate(self.seen))[since.made :]

    def _watch(self) -> None:
        while not self._over.wait(0.03):
            folder = self.project.run_folder(self.name)
            if folder is not None and (path := folder / "metrics.jsonl").exists():
                self._read(path)

    def _read(self, path: Path) -> None:
        """A file that is another one, or shorter, was put back to a checkpoint: what it has then was seen before."""
        status = path.stat()
        if status.st_ino != self._inode or status.st_size < self._position:
            seen_before, self._inode, self._position = self._inode != 0, status.st_ino, 0
            if seen_before:
                self._position = status.st_size
                return
        with path.open("rb") as file:
            file.seek(self._position)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        for line in whole.splitlines():
            row = json.loads(line)
            if "seconds" in row:
                self.seen.append((time.monotonic(), row["step"]))
