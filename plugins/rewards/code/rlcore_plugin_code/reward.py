"""The reward: it finds the program in the response, lets the tests of the row judge it, and returns the verdict.

Model text is never compiled in this process, and expected values never enter the process that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore.api import FinishReason, Outcome, Reward, RewardInput, Score
from rlcore.api.sandbox import Sandbox, open_sandbox
from rlcore_plugin_code import REWARD, languages
from rlcore_plugin_code.bodies import completed, unfenced_body
from rlcore_plugin_code.extract import found_program
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.runs import Runs
from rlcore_plugin_code.styles import read_suite
from rlcore_plugin_code.suite import BadCases, Program, Suite, Unjudgeable

__all__ = ["CodeReward"]

_PARSED = 500


class CodeReward(Reward, spec=REWARD):
    """Every test case of the row must pass, each in its own run; with the option ``partial`` the value is the share that passes."""

    def __init__(self, options: CodeOptions | None = None) -> None:
        self.options = options or CodeOptions()
        self._sandbox: Sandbox | None = None

    def open(self) -> None:
        """Open the sandbox; SandboxError if this machine has none, ConfigError if it lacks the tools of a language."""
        self._sandbox = open_sandbox(self.options.sandbox)
        languages.need(self.options.languages, self._sandbox.level)

    def close(self) -> None:
        """Close the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def notice(self) -> str:
        """Return a description of the sandbox on this machine."""
        return self._sandbox.describe() if self._sandbox is not None else ""

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return why the row's tests cannot be used, None if they can."""
        try:
            read_suite(columns["test_cases"])
        except BadCases as problem:
            return str(problem)
        return None

    def score(self, item: RewardInput) -> Score:
        """Return ``correct_score``, ``format_score``, a share between them (``partial``), or 0 without a program.

        :raises SandboxError: the sandbox failed, which is not the program's fault.
        """
        try:
            suite = read_suite(item.columns["test_cases"])
        except BadCases as problem:  # ``check`` reports it before a run; callers that did not check get it here
            return Score.failed(Outcome.INVALID, str(problem))
        accepted = self.options.languages if suite.any_language else ("python",)
        program = found_program(item.text, accepted, defines=suite.defines, reads_input=suite.reads_input)
        if program is None and suite.stub and (body := unfenced_body(item.text)) is not None:
            program = Program("python", body.encode("utf-8", "surrogatepass"))
        shown = program and program.text.decode("utf-8", "surrogatepass")[:_PARSED]
        return replace(self._judge(program and _whole(program, suite), suite, item.finish), parsed=shown)

    def _judge(self, program: Program | None, suite: Suite, finish: FinishReason) -> Score:
        if finish is FinishReason.LENGTH:
            return Score(value=0.0, accuracy=0.0, format_ok=program is not None, outcome=Outcome.WRONG, reason="truncated")
        if program is None:
            reason = "no closed ```python block"
            return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason=reason)
        length = len(program.text.decode("utf-8", "surrogatepass"))
        if length > self.options.max_program_chars:
            return self._wrong(0.0, f"limit: the program has {length} characters, more than {self.options.max_program_chars}")
        if self._sandbox is None:
            raise RuntimeError("code: score was called before open")
        try:
            verdict = suite.judge(program, Runs(self._sandbox, self.options))
        except Unjudgeable as problem:
            return Score.failed(Outcome.INVALID, str(problem))
        if not verdict.failure:
            return Score(value=self.options.correct_score, accuracy=1.0, format_ok=True)
        if self.options.partial:
            return self._wrong(verdict.passed / verdict.count, f"{verdict.failure} ({verdict.passed} of {verdict.count} tests passed)")
        return self._wrong(0.0, verdict.failure)

    def _wrong(self, share: float, reason: str) -> Score:
        value = self.options.format_score + share * (self.options.correct_score - self.options.format_score)
        return Score(value=value, accuracy=0.0, format_ok=True, outcome=Outcome.WRONG, reason=reason)


def _whole(program: Program, suite: Suite) -> Program:
    """Return the program, completed if it is only the body of the function that the prompt begins."""
    if not suite.stub:
        return program
    text = completed(program.text.decode("utf-8", "surrogatepass"), suite.stub, suite.defines[0])
    return program._replace(text=text.encode("utf-8", "surrogatepass"))
