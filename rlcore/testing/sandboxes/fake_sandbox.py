"""A sandbox that runs nothing: it records each job, and answers from options or from a function of the test."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api.sandbox import Job, Level, Limit, ProgramResult, Sandbox

__all__ = ["FakeSandbox", "FakeSandboxOptions"]


class FakeSandboxOptions(BaseModel):
    """Options of the ``fake`` sandbox: the outcome that it reports for every program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stdout: str | None = Field(default=None, description="The text that every program prints; its own input if unset.")
    exit_code: int = Field(default=0, description="How every program ends.")
    limit: Limit | None = Field(default=None, description="The limit that every program runs into.")
    packages: frozenset[str] | None = Field(default=None, description="The packages that programs may import; not known if unset.")


class FakeSandbox(Sandbox):
    """``jobs`` in order; ``closed`` counts the calls of ``close``; ``answer`` replaces the outcome of the options."""

    level = Level.NONE

    def __init__(self, options: FakeSandboxOptions | None = None, answer: Callable[[Job], ProgramResult] | None = None) -> None:
        self.options = options if options is not None else FakeSandboxOptions()
        self.packages = self.options.packages
        self.answer = answer if answer is not None else self._by_options
        self.jobs: list[Job] = []
        self.closed = 0

    def run(self, job: Job) -> ProgramResult:
        """Note the job and answer."""
        self.jobs.append(job)
        return self.answer(job)

    def describe(self) -> str:
        """Return one line."""
        return "none (a fake that runs nothing)"

    def close(self) -> None:
        """Count the call."""
        self.closed += 1

    def _by_options(self, job: Job) -> ProgramResult:
        said, limit = self.options.stdout, self.options.limit
        output = job.stdin if said is None else said.encode()
        return ProgramResult(
            exit_code=self.options.exit_code if limit is None else None, signal=None, stdout=output, stderr=b"", limit=limit
        )
