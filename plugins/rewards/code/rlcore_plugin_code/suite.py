"""The interface of a row's tests to the reward, whatever their style: their requirements of a program, and their verdict on one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from rlcore_plugin_code.runs import Runs

__all__ = ["BadCases", "CodeVerdict", "Program", "Suite", "Unjudgeable"]


class BadCases(ValueError):
    """The column cannot be used; the text is one sentence that says why."""


class Unjudgeable(Exception):
    """The tests of the row turned out to judge nothing; the text says why. The program is not at fault."""


class Program(NamedTuple):
    """A program of a response, and the language of its fence, a key of ``languages.LANGUAGES``."""

    language: str
    text: bytes


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """The number of passed tests and of all tests, and how the first failed test failed ("" if all passed)."""

    passed: int
    count: int
    failure: str


class Suite(ABC):
    """The tests of one row."""

    defines: tuple[str, ...] = ()
    """Names one of which a program must define; if there are none, it is run as a whole."""
    reads_input = False
    """Whether a program must read standard input."""
    stub = ""
    """The beginning of the program in the prompt, which ends inside the function that ``defines`` names: its body alone is enough."""
    any_language = False
    """Whether a program may be in another language than Python."""

    @abstractmethod
    def judge(self, program: Program, runs: Runs) -> CodeVerdict:
        """Run the tests; stop at the first that fails, unless the option ``partial`` is set.

        :raises SandboxError: the sandbox failed.
        :raises Unjudgeable: the tests cannot judge any program.
        """
