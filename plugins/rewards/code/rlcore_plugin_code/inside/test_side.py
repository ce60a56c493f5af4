"""Runs in a sandbox of its own, without the program: the tests of a row, which get the program's answers from earlier rounds.

Files of the working folder: ``tests.json`` (``setup``: code that runs first; ``asserts``: statements, each a test; or ``file``: a test
file; ``check``: the function of the file that takes the program's ``entry``; ``module``: what the file imports the program as; ``names``
of the program that hide Python's own), ``asked.json`` (calls and their answers). Writes one JSON object: the calls of this run, how many
of the first were answered, whether all were, and what became of each test.
"""

import ast
import builtins
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from rlcore_plugin_code.inside.stand_in_numpy import nothing_is_near_something
from rlcore_plugin_code.inside.stand_in_pytest import Skipped, install, units_of
from rlcore_plugin_code.inside.stand_ins import Enough, Questions, Unusable
from rlcore_plugin_code.inside.wire import keep_arrays

__all__ = ["judge"]


_Unit = tuple[str, Callable[[], Any]]


class _Names(dict[str, Any]):
    """Globals of the tests: a name that they do not define, and Python does not know, is the program's; ``own`` are so in any case."""

    def __init__(self, questions: Questions, own: list[str]) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self._questions, self._own = questions, own

    def __missing__(self, name: str) -> Any:
        if name not in self._own and (hasattr(builtins, name) or name.startswith("__")):
            raise KeyError(name)
        return self._questions.ask("name", {"g": name})


class _Module(ModuleType):
    """What ``import solution`` gives."""

    def __init__(self, name: str, questions: Questions) -> None:
        super().__init__(name)
        self.__dict__["questions of the tests"] = questions

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__["questions of the tests"].ask("name", {"g": name})


class _Asserts(ast.NodeTransformer):
    """``assert x, y`` becomes ``if not x: failed()``: while answers are missing a failure stops nothing."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        failed = ast.Expr(ast.Call(ast.Name("__failed__", ast.Load()), [], []))
        return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [failed], []), node)


class _Run:
    def __init__(self, tests: dict[str, Any], asked: list[Any]) -> None:
        self.tests, self.questions = tests, Questions(asked)
        self.names = _Names(self.questions, tests.get("names", []))
        self.names["__failed__"] = self._failed
        self.units: list[dict[str, Any]] = []
        self.unusable = ""

    def _failed(self) -> None:
        if not self.questions.unknown:
            raise AssertionError

    def execute(self, text: str) -> None:
        exec(self._compiled(text), self.names)

    def _compiled(self, text: str) -> CodeType:
        try:
            tree = _Asserts().visit(ast.parse(text, "tests"))
            return compile(ast.fix_missing_locations(tree), "tests", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise Unusable(f"the tests cannot be read as Python ({type(error).__name__}: {error})") from None

    def each(self) -> Iterator[_Unit]:
        """(name, function) of each part of the tests that can fail by itself. Of those that run the setup and the file only failures count,
        and a file without test functions, which is a test as a whole."""
        tests = self.tests
        for name in ("setup", "file"):
            if tests.get(name):
                yield name, lambda name=name: self.execute(tests[name])  # type: ignore[misc]
        for number, text in enumerate(tests.get("asserts", ()), start=1):
            yield f"test {number}", lambda text=text: self.execute(text)  # type: ignore[misc]
        if "check" in tests:
            yield f"{tests['check']}()", lambda: self.names[tests["check"]](self.names[tests["entry"]])
        elif "file" in tests:
            yield from units_of(self.names)

    def run(self) -> None:
        """Run them all, one after another, in one process, as pytest would."""
        try:
            for name, function in self.each():
                before = self.questions.uses
                why = self._one(function)
                if why or self.questions.uses > before:  # else it says nothing about the program
                    self.units.append({"name": name, "why": why, "known": not self.questions.unknown})
        except Enough:
            pass
        except Unusable as problem:
            self.unusable = str(problem)

    def _one(self, function: Callable[[], Any]) -> str:
        """How it failed, "" where it did not. What fails before anything came from the program cannot judge it."""
        try:
            function()
        except (Enough, Unusable):
            raise
        except Skipped:
            return ""
        except BaseException as error:
            name = type(error).__name__
            if not self.questions.calls:
                raise Unusable(f"the tests fail before they call the program ({name}: {error})"[:300]) from None
            return name
        return ""


def judge() -> None:
    """Run the tests of the working folder."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as channel:
        os.dup2(2, 1)
        with open("tests.json", encoding="ascii") as file:  # noqa: PTH123
            tests = json.load(file)
        with open("asked.json", encoding="ascii") as file:  # noqa: PTH123
            asked = json.load(file)
        install()
        if tests.get("numpy"):
            nothing_is_near_something()
            keep_arrays(of_nothing=False)
        run = _Run(tests, asked)
        name = tests.get("module", "solution")
        sys.modules[name] = _Module(name, run.questions)
        if tests.get("random"):
            __import__("random").seed(0)  # the same calls in every round
        run.run()
        questions = run.questions
        json.dump(
            {
                "calls": questions.calls,
                "known": questions.known,
                "complete": not questions.unknown,
                "units": run.units,
                "unusable": run.unusable,
            },
            channel,
        )
    os._exit(0)
