"""Runs groups of tests: three side by side, then those that must be alone, then what failed once more, alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import BinaryIO

from tests.groups.leash import Leash
from tests.groups.table import Group

__all__ = ["Job", "Result", "Runner", "command", "environment_folder"]

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 3
"""On two cores: a group waits for a third of its time."""
FAILED, NO_TESTS = 1, 5  # pytest's exit codes
WHOLE = {"PYTEST_ADDOPTS": ""}
"""A -k in it would make a part of a group pass for the whole."""


@dataclass(frozen=True)
class Job:
    """A group, and what pytest is given: files, or ids of tests."""

    group: Group
    chosen: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a job. ``code`` is pytest's; outcomes, reasons of skips and opened files are by its own report."""

    job: Job
    code: int
    seconds: float = 0.0
    outcomes: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    forgiven: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()

    @property
    def failed(self) -> list[str]:
        """Ids of the tests that failed."""
        return [test for test, outcome in self.outcomes.items() if outcome == "failed"]

    @property
    def counts(self) -> dict[str, int]:
        """Outcome -> how many tests."""
        return dict(Counter(self.outcomes.values()))

    @property
    def passed(self) -> bool:
        """Nothing failed that is not forgiven. A group whose tests are all gone fails, too."""
        return self.code == 0


class Runner:
    """``folder_of`` gives the folder of an environment, ``command`` the words of a job."""

    def __init__(
        self,
        leash: Leash,
        folder_of: Callable[[str], str],
        words: Callable[[Job, Path, Sequence[str]], list[str]] | None = None,
        say: Callable[[str], None] = lambda text: print(text, flush=True),
    ) -> None:
        self._leash, self._folder_of, self._words, self._say = leash, folder_of, words or command, say
        self._lock, self._begun, self._all = Lock(), 0, 0
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, jobs: Sequence[Job], ended: Callable[[Result], None] = lambda result: None) -> list[Result]:
        """Run every job, in this order, those that must be alone last; ``ended`` hears of each one that passed, one at a time."""
        beside = [job for job in jobs if not job.group.alone]
        self._begun, self._all = 0, len(jobs)
        results = self._side_by_side(beside, ended)
        for job in jobs:
            if job.group.alone:
                results.append(self._one(job))
                self._told(results[-1], ended)
        return [result if result.passed else self._once_more(result, ended) for result in results]

    def _side_by_side(self, jobs: Sequence[Job], ended: Callable[[Result], None]) -> list[Result]:
        results: list[Result] = []

        def one(job: Job) -> None:
            results.append(self._one(job))
            self._told(results[-1], ended)

        pool = ThreadPoolExecutor(SLOTS)
        try:
            list(pool.map(one, jobs))
        except BaseException:  # Ctrl-C, or a request to end: no other one begins, and those that run are interrupted as by a Ctrl-C
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(self._running):
                os.killpg(process.pid, signal.SIGINT)
            raise
        finally:
            pool.shutdown()
        return results

    def _told(self, result: Result, ended: Callable[[Result], None]) -> None:
        with self._lock:
            if result.passed:
                ended(result)

    def _one(self, job: Job, *, again: bool = False) -> Result:
        name, started = job.group.name, time.monotonic()
        with self._lock:
            self._begun += not again
            self._say(f"[{self._begun}/{self._all}] {name} begins{' again, alone' if again else ''}")
        with TemporaryDirectory(prefix="rlcore-group-") as folder:
            report, log = Path(folder, "report.json"), Path(folder, "log")
            folders = [self._folder_of(environment) for environment in job.group.environments]
            with log.open("wb") as stream:
                code = self._ended(self._words(job, report, folders), {**os.environ, **WHOLE, **_variables(job.group, folders)}, stream)
            told = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
            text = log.read_text(encoding="utf-8", errors="replace")
        seconds = time.monotonic() - started
        with self._lock:
            self._say(f"{f' {name} '.center(100, '=')}\n{text.rstrip()}\n{name}: {'passed' if code == 0 else 'FAILED'}, {seconds:.0f} s")
        known = {key: told[key] for key in ("outcomes", "skipped") if key in told}
        return Result(job=job, code=code, seconds=seconds, opened=tuple(told.get("opened", ())), **known)

    def _ended(self, words: list[str], environment: dict[str, str], stream: BinaryIO) -> int:
        """Run a program to its end, in a process group of its own: a Ctrl-C comes from here, once. Return its exit code."""
        with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT, process_group=0) as process:
            self._running.add(process)
            try:
                return process.wait()
            finally:
                self._running.discard(process)

    def _once_more(self, result: Result, ended: Callable[[Result], None]) -> Result:
        """Run what failed again, alone. It is forgiven if it passes now and the leash says so."""
        if result.code != FAILED or not result.failed:  # else pytest broke off, and what it did not reach may fail too
            return result
        again = self._one(replace(result.job, chosen=tuple(result.failed)), again=True)
        if not again.passed or any(again.outcomes.get(test) != "passed" for test in result.failed):
            return result
        complaints = self._leash.unforgiven(result.failed)
        for complaint in complaints:
            self._say(complaint)
        if complaints:
            return replace(result, complaints=tuple(complaints))
        forgiven = replace(result, code=0, forgiven=tuple(result.failed))
        self._told(forgiven, ended)
        return forgiven


def command(job: Job, report: Path, folders: Sequence[str]) -> list[str]:
    """What runs a group: pytest, in one process, here or inside its environment."""
    inside = ["tests.in_environment", folders[0]] if job.group.inside else ["pytest", "-p", "no:cacheprovider"]
    own = ["--group", job.group.name, "--group-report", str(report), "--color=no", "-q"]
    return [sys.executable, "-m", *inside, *job.chosen, *own]


def _variables(group: Group, folders: Iterable[str]) -> dict[str, str]:
    """RLCORE_TEST_VLLM names the environment vllm-cpu to tests, and so on."""
    if group.inside:
        return {}
    return {f"RLCORE_TEST_{name.partition('-')[0].upper()}": folder for name, folder in zip(group.environments, folders, strict=True)}


def environment_folder(name: str) -> str:
    """Build an environment of `rlcore env`, or find it."""
    built = subprocess.run([sys.executable, "-m", "rlcore", "env", "build", name], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return built.stdout.strip().splitlines()[-1]
