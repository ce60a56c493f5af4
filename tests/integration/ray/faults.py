"""Runs in the background, and what is done to them: processes found in /proc and killed, and what must be true of a run afterwards."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET

__all__ = ["PATIENCE", "BackgroundRun", "Killer", "Outcome", "fault_run", "processes_of", "until"]

PATIENCE = 300.0
"""Seconds after which a test that waits for an event gives up. On a quiet machine it takes seconds. A run starts ten processes, and each
imports Ray: beside four busy processes on two cores its first step takes minutes."""


def until(true: Callable[[], Any], what: str | Callable[[], object], seconds: float = PATIENCE) -> Any:
    """What ``true()`` gives, once that is true; fails the test where it is not in time. ``what``: it waits for, or what says that then."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what() if callable(what) else what}"
        time.sleep(0.02)
    return value


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    title: str


def processes_of(folder: Path) -> list[Process]:
    """All processes that have a file below this folder open, work in it or name it in their command: those of a Ray that lives there."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if title and (str(folder) in title or any(_below(link, folder) for link in _links(entry))):
                found.append(Process(int(entry.name), title))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def _links(process: Path) -> Iterator[str]:
    yield str((process / "cwd").readlink())
    for descriptor in (process / "fd").iterdir():
        yield str(descriptor.readlink())


def _below(link: str, folder: Path) -> bool:
    return link.startswith(f"{folder}/") or link == str(folder)


@dataclass
class Outcome:
    """What came of a run."""

    exit_code: int
    stdout: list[str]
    stderr: list[str]
    folder: Path | None

    def __str__(self) -> str:
        return "\n".join([f"[exit code {self.exit_code}]", "--- stdout", *self.stdout, "--- stderr", *self.stderr])

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The lines of a JSONL file of the run folder."""
        assert self.folder is not None, self
        return [json.loads(line) for line in (self.folder / name).read_text("utf-8").splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """What the run says of itself at the end."""
        assert self.folder is not None, self
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text("utf-8"))
        return summary

    @property
    def error(self) -> str:
        """The one sentence on standard error."""
        said = [line for line in self.stderr if line.startswith("error: ")]
        assert len(said) == 1, f"one sentence expected\n{self}"
        assert not any("Traceback" in line for line in self.stderr), self
        return said[0]

    def balances(self, prompts: int, *, staleness: int) -> Outcome:
        """Every prompt of every episode had one fate, none was trained twice, no token was older than allowed; returns itself."""
        assert self.exit_code == 0, self
        ledger = self.summary["ledger"]
        assert sum(ledger.values()) == prompts, f"{ledger}\n{self}"
        record = RunRecord(self.folder or Path())
        seen = Counter(
            (row["prompt_id"], row["episode"], row["kind"], row["index"])
            for step in record.rollout_steps()
            for row in record.rollouts(step)
        )
        assert len({key[:2] for key in seen}) == ledger["trained"] + self.masked, f"{ledger}\n{self}"
        assert set(seen.values()) == {1}, f"trained twice: {[key for key, times in seen.items() if times > 1]}"
        ages = [row["staleness/max"] for row in self.rows("metrics.jsonl") if "staleness/max" in row]
        assert max(ages) <= staleness, ages
        return self

    @property
    def masked(self) -> float:
        """Groups that were in a batch and did not train."""
        return sum(float(row.get("groups/masked", 0.0)) for row in self.rows("metrics.jsonl"))

    def learned(self) -> Outcome:
        """The run ended trained, by its held-out prompts, which are only six, and by the rewards of its completions; returns itself."""
        assert self.summary["accuracy_before"] <= 0.2, self
        assert self.summary["accuracy_after"] > self.summary["accuracy_before"], self
        rewards = [row["reward/mean"] for row in self.rows("metrics.jsonl") if "reward/mean" in row]
        first, last = rewards[:4], rewards[-len(rewards) // 3 :]
        assert fmean(last) >= fmean(first) + 0.2, f"{rewards}\n{self}"
        return self


@dataclass
class BackgroundRun:
    """``rlcore argv`` in a process and a session of its own; its lines are read while it runs."""

    tester: RunTester
    argv: tuple[str, ...]
    ray_dir: Path
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    def __enter__(self) -> BackgroundRun:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.argv],
            cwd=self.tester.folder,
            env={**self.tester.plugins.environment, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines))
            for stream, lines in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr))
        ]
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    @property
    def step(self) -> int:
        """The last update that it reported."""
        steps = [int(line.split()[1].split("/")[0]) for line in [*self.stdout, *self.stderr] if line.startswith("step ")]
        return max(steps, default=0)

    def reach(self, step: int) -> None:
        """Wait until it has reported this update."""
        until(lambda: self.step >= step or self.over, f"step {step}")
        assert not self.over, f"the run ended before step {step}\n{self.outcome()}"

    def said(self, pattern: str) -> None:
        """Wait until it has written a line that the regular expression is found in."""
        until(lambda: self._has_said(pattern) or self.over, repr(pattern))
        if self.over:
            outcome = self.outcome()  # all of its lines are there now
            assert self._has_said(pattern), f"the run ended and has not said {pattern!r}\n{outcome}"

    def _has_said(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in [*self.stderr, *self.stdout])

    def outcome(self) -> Outcome:
        """Wait for its end."""
        until(lambda: self.over, "the end of the run")
        for reader in self._readers:
            reader.join()
        folders = sorted((self.tester.folder / "runs").glob("*/*"), key=lambda folder: folder.stat().st_mtime)
        return Outcome(self.process.returncode, self.stdout, self.stderr, folders[-1] if folders else None)

    def actors(self, cls: str) -> list[Process]:
        """The processes of the actors of a class that live."""
        return [process for process in processes_of(self.ray_dir) if process.title.startswith(f"ray::{cls}")]

    def strike(self, cls: str, number: signal.Signals) -> None:
        """Send a signal to an actor of this class, once there is one."""
        victims = until(lambda: self.actors(cls) or self.over, cls)
        assert victims is not True, f"the run ended before {cls} could be struck\n{self.outcome()}"
        os.kill(victims[0].pid, number)


@dataclass
class Killer:
    """Kills by signal 9, and counts."""

    kills: int = 0

    def kill(self, run: BackgroundRun, find: Callable[[], list[Process]], what: str, choose: random.Random | None = None) -> None:
        """Kill one of the processes that ``find`` names as soon as there is one."""
        while True:
            victims = until(lambda: find() or run.over, what)
            assert victims is not True, f"the run ended before {what} could be killed\n{run.outcome()}"
            try:
                os.kill((choose or random).choice(victims).pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was about to end
            self.kills += 1
            return


def fault_run(tester: RunTester, episodes: int, **sections: dict[str, Any]) -> str:
    """A configuration that learns to say six letters, slowly enough to be killed meanwhile; six prompts an episode, three a batch."""
    defaults: dict[str, dict[str, Any]] = {
        "run": {"num_episodes": episodes, "max_steps": episodes * 2, "runtime": "ray"},
        "sampling": {"num_generations": 16},
        "inference": {"name": "slow", "options": {"seconds": 0.02}},
        "training": {"learning_rate": 0.5},
        "eval": {"eval_dataset": {"held": "train.jsonl"}},
        "schedule": {"max_staleness": 2, "producer_restarts": 100, "reward_workers": 1, "reward_error_budget": 0.5},
        "log": {"rollout_interval": 1},
    }
    for section, values in sections.items():
        defaults[section] = {**defaults.get(section, {}), **values}
    return tester.fake_run(**defaults)
