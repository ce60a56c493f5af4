"""The reward: take the program out of the response, run it on each test, say what became of it.

Model text is never compiled in this process, and what is expected never leaves it: the sandbox gets a program and its input.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.api import Finish, Outcome, Reward, RewardInput, Score
from rlcore.api.sandbox import Job, Limit, Limits, Ran, Sandbox, open_sandbox
from rlcore_plugin_code.cases import BadCases, Case, chosen, read_cases
from rlcore_plugin_code.compare import same_output
from rlcore_plugin_code.extract import last_program
from rlcore_plugin_code.options import CodeOptions

__all__ = ["CodeReward"]

_MIB = 1 << 20
_PARSED = 500
_EXCERPT = 120


class CodeReward(Reward):
    """Every test case of the row must pass, each in a run of its own; with the option ``partial`` the share that passes is paid."""

    requires = ("test_cases",)

    def __init__(self, options: CodeOptions | None = None) -> None:
        self.options = options or CodeOptions()
        self._sandbox: Sandbox | None = None

    def open(self) -> None:
        """Open the sandbox; SandboxError where this machine has none."""
        self._sandbox = open_sandbox(self.options.sandbox)

    def close(self) -> None:
        """Close the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def notice(self) -> str:
        """What walls programs in on this machine."""
        return self._sandbox.describe() if self._sandbox is not None else ""

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Why the row's tests cannot be used, None where they can."""
        try:
            read_cases(columns["test_cases"])
        except BadCases as problem:
            return str(problem)
        return None

    def score(self, item: RewardInput) -> Score:
        """``correct_score``, ``format_score``, a share between them (``partial``), or 0 without a program.

        :raises SandboxError: the sandbox failed, which is not the program's fault.
        """
        try:
            cases = chosen(read_cases(item.columns["test_cases"]), self.options.max_tests)
        except BadCases as problem:  # ``check`` says so before a run starts; whoever did not ask is told here
            return Score.failed(Outcome.INVALID, str(problem))
        program = last_program(item.text)
        return replace(self._judge(program, cases, item.finish), parsed=program and program[:_PARSED])

    def _judge(self, program: str | None, cases: Sequence[Case], finish: Finish) -> Score:
        if finish is Finish.LENGTH:
            return Score(value=0.0, accuracy=0.0, format_ok=program is not None, outcome=Outcome.WRONG, reason="truncated")
        if program is None:
            reason = "no closed ```python block"
            return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason=reason)
        if len(program) > self.options.max_program_chars:
            return self._wrong(0.0, f"limit: the program has {len(program)} characters, more than {self.options.max_program_chars}")
        passed, failure = self._run(program.encode("utf-8", "surrogatepass"), cases)
        if not failure:
            return Score(value=self.options.correct_score, accuracy=1.0, format_ok=True)
        if self.options.partial:
            return self._wrong(passed / len(cases), f"{failure} ({passed} of {len(cases)} tests passed)")
        return self._wrong(0.0, failure)

    def _wrong(self, share: float, reason: str) -> Score:
        value = self.options.format_score + share * (self.options.correct_score - self.options.format_score)
        return Score(value=value, accuracy=0.0, format_ok=True, outcome=Outcome.WRONG, reason=reason)

    def _run(self, program: bytes, cases: Sequence[Case]) -> tuple[int, str]:
        """How many tests passed, and how the first that did not failed ("" where all passed).

        The time of all tests is the programs' own, as the sandbox measured it, so that a slow machine around them costs no verdict.
        """
        if self._sandbox is None:
            raise RuntimeError("code: score was called before open")
        passed, failure, spent = 0, "", 0.0
        for case in cases:
            left = self.options.total_seconds - spent
            if left <= 0:
                return passed, failure or self._total(case)
            ran = self._sandbox.run(Job(source=program, stdin=case.stdin, limits=self._limits(case, left)))
            spent += ran.wall_seconds
            problem = self._problem(ran, case, left)
            passed += not problem
            failure = failure or problem
            if failure and not self.options.partial:
                break
        return passed, failure

    def _limits(self, case: Case, left: float) -> Limits:
        return Limits(
            cpu_seconds=self.options.cpu_seconds,
            wall_seconds=min(self.options.wall_seconds, left),
            memory_bytes=self.options.memory_mb * _MIB,
            output_bytes=max(int(self.options.output_mb * _MIB), 4 * len(case.expected)),
            processes=self.options.processes,
        )

    def _problem(self, ran: Ran, case: Case, left: float) -> str:
        """Why the run does not pass, "" where it does; never tells what was expected."""
        if ran.limit is Limit.WALL and left < self.options.wall_seconds:
            return self._total(case)
        if ran.limit is not None:
            return f"limit: {ran.limit}, test {case.number}"
        if not ran.ok:
            return f"test {case.number}: {_ending(ran)}{_last_line(ran.stderr)}"
        if not same_output(case.expected, ran.stdout, tolerance=self.options.float_tolerance):
            return f"test {case.number}: wrong output"
        return ""

    def _total(self, case: Case) -> str:
        return f"limit: total, {self.options.total_seconds:g} s were over at test {case.number}"


def _ending(ran: Ran) -> str:
    if ran.signal is None:
        return f"exit code {ran.exit_code}"
    try:
        return f"signal {signal.Signals(ran.signal).name}"
    except ValueError:
        return f"signal {ran.signal}"


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    plain = "".join(sign if sign.isprintable() else " " for sign in last[:_EXCERPT]).strip()
    return f": {plain}" if plain else ""
