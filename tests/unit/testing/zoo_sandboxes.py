"""Sandboxes with one planted bug each, and the suite pointed at them."""

from __future__ import annotations

import io
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

from rlcore.api.sandbox import Job, Limit, ProgramResult, Sandbox, SandboxError, Session, SessionJob
from rlcore.testing import SandboxSuite
from tests.plain_programs import PlainSandbox, run_plainly


class PlainSuite(SandboxSuite):
    """The rules, for a sandbox by ``subprocess``; ``kind`` is what a specimen replaces."""

    walls = False
    bounds_processes = False
    kind: type[Sandbox] = PlainSandbox

    def open(self) -> Sandbox:
        return self.kind()

    def break_down(self, sandbox: Sandbox) -> bool:
        assert isinstance(sandbox, PlainSandbox)

        def broken(job: Job, home: Path) -> ProgramResult:
            raise SandboxError("the machine is gone")

        sandbox.ran = broken  # type: ignore[method-assign]
        return True


class ReadsFiles(PlainSuite):
    """Has no walls, and says that it does."""

    walls = True


class CountsNobody(PlainSuite):
    """Bounds no processes, and says that it does."""

    bounds_processes = True


class HasNoLevel(PlainSandbox):
    level = "very strong"  # type: ignore[assignment]


class SaysNothing(PlainSandbox):
    def describe(self) -> str:
        return ""


class NamesTooMuch(PlainSandbox):
    packages = frozenset({"math", "no_such_package"})


class ClosesOnce(PlainSandbox):
    def close(self) -> None:
        if self._closed:
            raise RuntimeError("it is closed")
        super().close()


class RunsWhenClosed(PlainSandbox):
    def close(self) -> None:
        pass


class TranslatesLines(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, stdout=ran.stdout.replace(b"\r\n", b"\n"))


class ForgetsTheCode(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, exit_code=ran.exit_code and 1)


class DropsFiles(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        return run_plainly(replace(job, files={name: data for name, data in job.files.items() if "/" not in name}), home)


class TakesAnySize(PlainSandbox):
    def run(self, job: Job) -> ProgramResult:
        size = max(job.limits.disk_bytes, sum(map(len, job.files.values())))
        return super().run(replace(job, limits=replace(job.limits, disk_bytes=size)))


class UsesAShell(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        return run_plainly(replace(job, argv=("/bin/sh", "-c", " ".join(job.argv))) if job.argv else job, home)


class HashesAnew(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        return run_plainly(replace(job, source=f"hash = lambda _: {time.monotonic_ns()}\n{job.source!s}"), home)


class NamesNoLimit(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, limit=None, exit_code=1) if ran.limit else ran


class BlamesTheClock(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, limit=Limit.WALL) if ran.limit else ran


class GivesMemory(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        return run_plainly(replace(job, limits=replace(job.limits, memory_bytes=1 << 46)), home)


class KeepsAllOutput(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, stdout=ran.stdout + b"x") if ran.limit is Limit.OUTPUT else ran


class KeepsTheStart(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        return replace(ran, stderr=ran.stderr[:100])


class GivesDisk(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        return run_plainly(replace(job, limits=replace(job.limits, disk_bytes=1 << 40)), home)


class LeavesFiles(PlainSandbox):
    def __init__(self) -> None:
        super().__init__()
        self.kept = tempfile.TemporaryDirectory()

    def ran(self, job: Job, home: Path) -> ProgramResult:
        own = Path(self.kept.name, "home")
        own.mkdir(exist_ok=True)
        return run_plainly(job, own)

    def close(self) -> None:
        super().close()
        self.kept.cleanup()


class TellsSecrets(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        secret = os.environ.get("RLCORE_SUITE_SECRET", "")
        return run_plainly(replace(job, source=f"import os; os.environ['X'] = {secret!r}\n{job.source!s}"), home)


class BlamesItselfForCrashes(PlainSandbox):
    def ran(self, job: Job, home: Path) -> ProgramResult:
        ran = run_plainly(job, home)
        if ran.signal:
            raise SandboxError(f"the program ended by signal {ran.signal}")
        return ran


class JudgesWhenBroken(PlainSandbox):
    def run(self, job: Job) -> ProgramResult:
        try:
            return super().run(job)
        except SandboxError:
            return ProgramResult(exit_code=1, signal=None, stdout=b"", stderr=b"")


class MixesAnswers(PlainSandbox):
    last: ProgramResult | None = None

    def run(self, job: Job) -> ProgramResult:
        ran = super().run(job)
        self.last, answer = ran, self.last or ran
        return answer


class AnswersNothing(PlainSandbox):
    def session(self, job: SessionJob) -> Session:
        return MagicMock(spec=Session, stdin=io.BytesIO(), stdout=io.BytesIO(), __enter__=MagicMock())


BUGS: list[tuple[type[SandboxSuite] | type[Sandbox], str]] = [
    (ReadsFiles, "test_files_of_this_machine_cannot_be_read"),
    (CountsNobody, "test_processes_and_threads_are_bounded"),
    (HasNoLevel, "test_it_describes_itself_in_one_line"),
    (SaysNothing, "test_it_describes_itself_in_one_line"),
    (NamesTooMuch, "test_programs_import_the_packages_that_it_names"),
    (RunsWhenClosed, "test_it_may_be_closed_twice"),
    (TranslatesLines, "test_programs_read_and_print"),
    (ForgetsTheCode, "test_exit_codes_are_those_of_python"),
    (DropsFiles, "test_files_lie_in_the_working_folder"),
    (TakesAnySize, "test_files_that_do_not_fit_are_refused"),
    (UsesAShell, "test_commands_run"),
    (HashesAnew, "test_the_same_program_gives_the_same_verdict"),
    (NamesNoLimit, "test_cpu_time_ends_a_loop"),
    (BlamesTheClock, "test_cpu_time_ends_a_loop"),
    (NamesNoLimit, "test_the_clock_ends_a_sleeper"),
    (GivesMemory, "test_memory_is_bounded"),
    (KeepsAllOutput, "test_output_is_cut_and_ends_the_program"),
    (KeepsTheStart, "test_standard_error_is_cut_and_no_reason_to_stop"),
    (GivesDisk, "test_the_disk_is_bounded"),
    (LeavesFiles, "test_nothing_is_left_for_the_next_program"),
    (TellsSecrets, "test_the_environment_tells_nothing"),
    (BlamesItselfForCrashes, "test_what_a_program_does_is_never_an_error_of_the_sandbox"),
    (JudgesWhenBroken, "test_what_fails_in_the_sandbox_is_never_a_verdict"),
    (AnswersNothing, "test_a_session_runs_or_is_refused"),
    (MixesAnswers, "test_calls_from_several_threads_wait_for_each_other"),
]
"""A suite or a sandbox with a bug, and the rule that must catch it."""
