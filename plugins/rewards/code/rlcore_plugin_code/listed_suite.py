"""Tests that each have their own run, one after another: programs that read standard input, and calls of a function."""

from __future__ import annotations

import json
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.api.sandbox import ProgramResult
from rlcore_plugin_code import languages, texts
from rlcore_plugin_code.cases import Case, chosen, kind_name, pairs, read_cases
from rlcore_plugin_code.compare import has_fractions, numeric, same_output
from rlcore_plugin_code.digits import read_json, whole
from rlcore_plugin_code.inside.wire import encode
from rlcore_plugin_code.runs import OutOfTime, Runs, ending
from rlcore_plugin_code.suite import BadCases, CodeVerdict, Program, Suite, Unjudgeable
from rlcore_plugin_code.values import same_value

__all__ = ["CallSuite", "StdinSuite", "answers_of", "raised"]


class _Listed(Suite):
    """A list of independent tests."""

    tests: Sequence[Any]

    def judge(self, program: Program, runs: Runs) -> CodeVerdict:
        passed, failure, number = 0, "", 0
        tests = chosen(self.tests, runs.options.max_tests)
        try:
            judged = self._prepared(program, runs)
            for test in tests:
                number = test.number
                problem = judged(test)
                passed += not problem
                failure = failure or problem
                if failure and not runs.options.partial:
                    break
        except OutOfTime:
            at = f"at test {number}" if number else "while it was compiled"
            failure = failure or f"limit: total, {runs.options.total_seconds:g} s were over {at}"
        except languages.NotCompiled as problem:
            failure = str(problem)
        return CodeVerdict(passed, len(tests), failure)

    @abstractmethod
    def _prepared(self, program: Program, runs: Runs) -> Callable[[Any], str]:
        """Return a function that runs one test and returns why it failed, "" if it passed; never the expected output."""


class StdinSuite(_Listed):
    """The program reads standard input; its output is compared, or judged by a checker of the row."""

    any_language = True

    def __init__(self, table: Mapping[str, Any]) -> None:
        checker, numbers = table.get("checker"), table.get("numeric")
        if checker is not None and (not isinstance(checker, str) or not checker.strip()):
            raise BadCases("checker of test_cases must be the text of a Python program")
        if numbers is not None and not isinstance(numbers, bool):
            raise BadCases("numeric of test_cases must be true or false")
        self.tests = read_cases(table, may_be_empty=checker is not None)
        self._checker = checker
        valid = [text for case in self.tests for text in (case.expected, *case.others)]
        self._numbers = numbers if numbers is not None else numeric(valid)
        self._fractions = self._numbers and has_fractions(valid)
        self.reads_input = any(case.stdin.strip() for case in self.tests)

    def _prepared(self, program: Program, runs: Runs) -> Callable[[Case], str]:
        if lacking := _lacking(self._checker or "", runs.sandbox.packages):
            raise Unjudgeable(f"the checker of the row imports {lacking}, which the sandbox does not have; it would refuse every program")
        run = languages.prepared(program, runs)

        def judged(case: Case) -> str:
            longest = max(map(len, (case.expected, *case.others)))
            ran = run(case.stdin, 4 * longest)
            if problem := ending(ran, f"test {case.number}"):
                return problem
            return "" if self._right(case, ran.stdout, runs) else f"test {case.number}: wrong output"

        return judged

    def _right(self, case: Case, output: bytes, runs: Runs) -> bool:
        if self._checker is not None:
            return _checked(self._checker, case, output, runs)
        absolute, relative = runs.options.closeness
        return any(
            same_output(valid, output, tolerance=absolute, relative=relative, numbers=self._numbers, fractions=self._fractions)
            for valid in (case.expected, *case.others)
        )


_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_CHECK = (
    texts.LIMITS
    + b"""import runpy, sys
sys.argv = ["checker.py", "input.txt", "output.txt", "expected.txt"]
runpy.run_path("checker.py", run_name="__main__")
"""
)


def _lacking(checker: str, packages: frozenset[str] | None) -> str:
    """Return the first package that the checker imports and that is not available there; "" if there is none, or if the packages are
    unknown."""
    names = () if packages is None else _IMPORTED.findall(checker)
    return next((name for name in names if name not in sys.stdlib_module_names and name not in packages), "")  # type: ignore[operator]


def _checked(checker: str, case: Case, output: bytes, runs: Runs) -> bool:
    """Return the checker's verdict: exit code 0. It runs alone, after the program has ended, and sees only files."""
    files = {
        "checker.py": checker.encode("utf-8", "surrogatepass"),
        "input.txt": case.stdin,
        "output.txt": output,
        "expected.txt": case.expected,
    }
    return runs.run(source=_CHECK, files=files).ok


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: its encoded arguments, and the right results."""

    number: int
    arguments: Any
    valid: tuple[Any, ...]

    @property
    def texts(self) -> tuple[bytes, ...]:
        return (json.dumps(self.arguments).encode(), _written(self.valid).encode())


class CallSuite(_Listed):
    """A function of the program, or a method of its class ``Solution``, is called; the host process compares the result."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._name = table["fn_name"]
        if not isinstance(self._name, str) or not self._name.isidentifier():
            raise BadCases(f"fn_name of test_cases is {str(self._name)[:80]!r}; it must be the name of a function")
        self.defines = (self._name,)
        self.tests = tuple(_call(number, given, valid) for number, (given, valid) in enumerate(pairs(table), start=1))
        if all(isinstance(one, list) and len(one) == 1 for test in self.tests for one in test.valid):
            # APPS and TACO put each result in a list; if results are lists of one item, it cannot be seen whether they did.
            self.tests = tuple(_Call(test.number, test.arguments, (*test.valid, *(one[0] for one in test.valid))) for test in self.tests)

    def _prepared(self, program: Program, runs: Runs) -> Callable[[_Call], str]:
        names = _names_for(program.text)
        absolute, relative = runs.options.closeness

        def judged(test: _Call) -> str:
            call = {"do": "call", "of": {"g": self._name}, "args": test.arguments, "keywords": {}}
            files = {"solution.py": program.text, "names.py": names, "calls.json": json.dumps([call]).encode(), **texts.program_side()}
            longest = max(len(_written(one)) for one in test.valid)
            ran = runs.run(source=texts.LOADER, files=files, output_bytes=8 * longest)
            if problem := ending(ran, f"test {test.number}"):
                return problem
            answer = answers_of(ran)[:1]
            if not answer:
                return f"test {test.number}: ended without a result"
            if problem := raised(answer[0]):
                return f"test {test.number}: {problem}"
            try:
                right = any(same_value(one, answer[0]["value"], absolute=absolute, relative=relative) for one in test.valid)
            except RecursionError:
                right = False
            return "" if right else f"test {test.number}: wrong result"

        return judged


def answers_of(ran: ProgramResult) -> list[dict[str, Any]]:
    """Return the answers of the program's side, up to the first line that is not an answer."""
    found: list[dict[str, Any]] = []
    for line in ran.stdout.split(b"\n")[:-1]:
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(answer, dict) or not ({"value", "raised"} & set(answer)):
            break
        found.append(answer)
    return found


def raised(answer: Mapping[str, Any]) -> str:
    """Return the exception that ended a call, as one line; "" if the call returned a value."""
    if "raised" not in answer:
        return ""
    plain, text, names = (*answer["raised"], "", "", "")[:3] if isinstance(answer["raised"], list) else ("exception", "", "")
    name = names[0] if isinstance(names, list) and names else plain
    line = " ".join(f"{name}: {text}".split())[:120]
    return "".join(sign if sign.isprintable() else " " for sign in line)


def _call(number: int, given: Any, valid: Sequence[Any]) -> _Call:
    if isinstance(given, str):
        arguments, results = _json_lines(given, number), tuple(_result(one, number) for one in valid)
    elif isinstance(given, list | tuple):
        arguments, results = list(given), tuple(valid)
    else:
        raise BadCases(
            f"input {number} of test_cases is {kind_name(given)}; for a function it must be a list of arguments, or one JSON value per line"
        )
    try:
        _written(results)
        return _Call(number, [encode(_with_numbers(argument)) for argument in arguments], results)
    except Exception as error:
        raise BadCases(f"test {number} of test_cases contains a value that JSON cannot represent ({str(error)[:80]})") from None


def _written(value: Any) -> str:
    """Return the value as JSON; encoded by ``encode`` if it has numbers of more digits than Python converts."""
    try:
        return json.dumps(value)
    except ValueError:
        return json.dumps(encode(value))


def _json_lines(text: str, number: int) -> list[Any]:
    try:
        return [read_json(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        pass
    try:
        return [read_json(text)]  # one value over several lines
    except (ValueError, RecursionError) as error:
        raise BadCases(f"input {number} of test_cases is text that is not one JSON value per line ({str(error)[:60]})") from None


def _result(value: Any, number: int) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except (ValueError, RecursionError) as error:
        raise BadCases(f"output {number} of test_cases is text that is not JSON ({str(error)[:60]})") from None


def _with_numbers(argument: Any) -> Any:
    """Return tables with whole numbers as keys if all keys can be read as such, since JSON has only text keys."""
    if isinstance(argument, dict) and argument and all(key.lstrip("-").isascii() and key.lstrip("-").isdigit() for key in argument):
        return {whole(key): value for key, value in argument.items()}
    return argument


_STARS = ("typing", "collections", "heapq", "bisect", "itertools", "functools", "math", "string", "operator")
_MODULES = (*_STARS, "copy", "datetime", "json", "os", "random", "re", "statistics", "sys", "time")


def _names_for(program: bytes) -> bytes:
    """Return code to run before a program: library names that sites of such problems, above all LeetCode, provide without an import."""
    used = [name for name in _MODULES if name.encode() + b"." in program]
    lines = [f"from {name} import *" for name in _STARS] + ["from builtins import *"] + [f"import {name}" for name in used]
    return "\n".join(lines).encode()
