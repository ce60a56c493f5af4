"""Tests that are Python code: ``assert`` statements, a function ``check(candidate)``, a file for pytest or unittest.

Program and tests never run in the same process. The tests run in their own sandbox, where every use of the program is recorded as a call
(``inside.stand_ins``). The program runs in another sandbox, which receives only these calls. Its answers, plain values, go to the tests in
the next round. The last round, in which every call has its answer, decides. The program's process therefore never contains the expected
values.

An answer is final once the tests have continued from it. Otherwise a program that changes its answer to the same call in a later round
would have a second attempt, since the calls of that round tell it which answers were wrong.

Each round asks for all answers again, so the bytes of all rounds together are bounded: a program whose answers grow from round to round is
wrong. The time that this process spends on them counts as the program's (``runs``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rlcore_plugin_code import texts
from rlcore_plugin_code.bodies import closed
from rlcore_plugin_code.cases import kind_name
from rlcore_plugin_code.inside.wire import settled
from rlcore_plugin_code.listed_suite import answers_of
from rlcore_plugin_code.runs import OutOfTime, Runs, ending
from rlcore_plugin_code.suite import BadCases, CodeVerdict, Program, Suite, Unjudgeable

__all__ = ["AssertSuite", "CheckSuite", "FileSuite"]

_MOST_ROUNDS = 200
_REPORT_BYTES = 16 << 20  # also read in this process: a program whose answers come back as arguments could fill it
_ANSWER_BYTES = 4 << 20  # of all answers of a program; more only if output_mb is more. They are read in this process and use its memory
_TOTAL_BYTES = 64 << 20  # of the calls and answers of all rounds; more only if the calls of the first round are more
_NUMPY = re.compile(r"\b(?:np|numpy)\b")


class _Coded(Suite):
    """Tests that are code. ``tests``: the input of the tests' side (``inside.test_side``); ``before``: code that precedes the program. The
    tests also use its helpers and classes, and run their own copies of them."""

    def __init__(self, tests: Mapping[str, Any], before: str = "") -> None:
        text = json.dumps(tests) + before
        arrays = bool(_NUMPY.search(text))
        self._files = {"tests.json": json.dumps({**tests, "before": before, "random": "random" in text, "numpy": arrays}).encode()}
        # A sandbox with NumPy preloaded searches Python files for the import; for the program's side this file is the sign.
        self._imports = {"imports.py": b"import numpy\n"} if arrays else {}
        self._before = before.encode("utf-8", "surrogatepass")

    def judge(self, program: Program, runs: Runs) -> CodeVerdict:
        asked: list[Any] = []
        deadly, died = None, ""
        report: dict[str, Any] = {"units": [], "calls": []}
        meter = _Meter()
        try:
            for _ in range(_MOST_ROUNDS):
                report = self._tests_run(asked, runs)
                calls = report["calls"]
                if report["complete"]:
                    return _verdict(report, "")
                if died and len(calls) > len(asked) and settled(calls[len(asked)], [answer for _, answer in asked]) == deadly:
                    return _verdict(report, died)
                if meter.over(calls, asked):
                    return _verdict(report, f"limit: output, all calls and answers together exceed {meter.most >> 20} MiB")
                answers, died = self._program_run(program, report, runs)
                answers[: report["known"]] = [answer for _, answer in asked[: report["known"]]]
                asked = [[call, answer] for call, answer in zip(calls, answers, strict=False)]
                deadly = settled(calls[len(asked)], answers) if len(asked) < len(calls) else None
        except RecursionError:
            return _verdict(report, "the program: answers are nested too deep")
        except OutOfTime:
            return _verdict(report, f"limit: total, {runs.options.total_seconds:g} s were over")
        return _verdict(report, f"limit: the tests still had new calls after {_MOST_ROUNDS} rounds")

    def _tests_run(self, asked: list[Any], runs: Runs) -> dict[str, Any]:
        files = {**self._files, **self._imports, "asked.json": json.dumps(asked).encode(), **texts.test_side()}
        ran = runs.run(source=texts.LOADER, files=files, output_bytes=_REPORT_BYTES)
        try:
            report = json.loads(ran.stdout)
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict):
            problem = ending(ran, "the tests") or "the tests: ended without a verdict"
            if not asked:
                raise Unjudgeable(f"the tests of the row cannot be run: {problem}")
            return {"complete": True, "calls": [], "units": [{"name": problem, "why": "", "known": False}]}
        if report["unusable"]:
            raise Unjudgeable(report["unusable"])
        if not report["calls"]:
            raise Unjudgeable("the tests of the row never call the program, so any program would pass")
        return report

    def _program_run(self, program: Program, report: Mapping[str, Any], runs: Runs) -> tuple[list[dict[str, Any]], str]:
        """Return (answers, how the program ended if there are fewer answers than calls)."""
        calls = report["calls"]
        asked = json.dumps(calls).encode()
        files = {"solution.py": program.text, "before.py": self._before, **self._imports, **texts.program_side()}
        files |= {"calls.json": asked, "brought.json": json.dumps(report["brought"]).encode()}
        ran = runs.run(source=texts.LOADER, files=files, output_bytes=max(4 * len(asked), _ANSWER_BYTES))
        answers = answers_of(ran)[: len(calls)]
        if len(answers) == len(calls):
            return answers, ""
        return answers, ending(ran, "the program") or "the program: ended before it answered every call"


class _Meter:
    """Counts the bytes of the calls and answers of all rounds."""

    def __init__(self) -> None:
        self.most = 0
        self._total = 0

    def over(self, calls: list[Any], asked: list[Any]) -> bool:
        """Count a round, and return whether the total is too large."""
        size = len(json.dumps([calls, asked]))
        self.most = self.most or max(_TOTAL_BYTES, 4 * size)
        self._total += size
        return self._total > self.most


def _verdict(report: Mapping[str, Any], ended: str) -> CodeVerdict:
    """Return the verdict. ``ended``: the reason why the program ended before all calls were answered."""
    units = report["units"]
    passed = sum(unit["known"] and not unit["why"] for unit in units)
    first = next((unit for unit in units if unit["why"] or not unit["known"]), None)
    if first is None:
        return CodeVerdict(passed, max(len(units), 1), ended or ("" if units else "no test ran to its end"))
    if first["known"]:
        return CodeVerdict(passed, len(units), f"{first['name']}: {first['why']}")
    return CodeVerdict(passed, max(len(units), 1), ended or first["name"])


class AssertSuite(_Coded):
    """MBPP: a list of statements, each a test; ``setup`` runs before them; ``names`` belong to the program even if Python has them;
    ``before``: the beginning of the program, such as imports."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        asserts = table["asserts"]
        if not isinstance(asserts, list | tuple) or not asserts or not all(isinstance(one, str) and one.strip() for one in asserts):
            raise BadCases("asserts of test_cases must be a list of Python statements, at least one")
        names = table.get("names") or []
        super().__init__({"asserts": list(asserts), "setup": _code(table, "setup"), "names": list(names)}, _code(table, "before"))
        self.defines = tuple(names)


class CheckSuite(_Coded):
    """HumanEval: code that defines ``check(candidate)``, which takes the program's ``entry_point``; ``before``: the stub of the prompt."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        entry = _code(table, "entry_point")
        if not entry.isidentifier():
            raise BadCases("test_cases has a check, but entry_point is not the name of a function")
        stub = _code(table, "before")
        super().__init__({"file": _code(table, "check"), "check": "check", "entry": entry, "names": [entry]}, closed(stub))
        self.defines, self.stub = (entry,), stub


class FileSuite(_Coded):
    """A test file; ``module`` is the name by which it imports the program."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        names = table.get("names") or []
        module = _code(table, "module") or "solution"
        super().__init__({"file": _code(table, "test_file"), "module": module, "names": list(names)}, _code(table, "before"))
        self.defines = tuple(names)


def _code(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadCases(f"{name} of test_cases is {kind_name(value)}; it must be text")
    return value
