"""Runs in its own sandbox, without the program: the tests of a row, which get the program's answers from earlier rounds.

Files of the working folder: ``tests.json`` (``setup``: code that runs first; ``asserts``: statements, each a test; or ``file``: a test
file; ``check``: the function of the file that takes the program's ``entry``; ``module``: the name by which the file imports the program;
``names`` of the program that hide Python's own; ``before``: the stub of the prompt, whose helpers and classes are run here for the tests),
``asked.json`` (calls and their answers). Writes one JSON object: the calls of this run, how many of the first were answered, whether all
were, and the result of each test.
"""

import ast
import builtins
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from rlcore_plugin_code.inside.names_of_tests import Names, fields_of, stubs_of
from rlcore_plugin_code.inside.stand_in_asyncio import awaitable_stand_ins
from rlcore_plugin_code.inside.stand_in_numpy import nothing_is_near_something, without_items
from rlcore_plugin_code.inside.stand_in_pytest import Skipped, install, units_of
from rlcore_plugin_code.inside.stand_ins import (
    Enough,
    Held,
    Questions,
    Stopped,
    Unknown,
    attribute_of,
    has_attribute,
    is_instance,
    is_subclass,
    next_of,
    type_of,
)
from rlcore_plugin_code.inside.surroundings import Surroundings
from rlcore_plugin_code.inside.wire import Unusable, keep_arrays

__all__ = ["judge"]


_Unit = tuple[str, Callable[[], Any]]


class _Globals(dict[str, Any]):
    """Globals of the tests. A name that neither they nor Python define is looked up: see ``names_of_tests``."""

    def __init__(self, own: list[str], missing: Callable[[str], Any]) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self._own, self._missing = own, missing

    def __missing__(self, name: str) -> Any:
        if name not in self._own and (hasattr(builtins, name) or name.startswith("__")):
            raise KeyError(name)
        return self._missing(name)


class _Module(ModuleType):
    """The module that ``import solution`` returns."""

    def __init__(self, name: str, ask: Callable[[str], Any]) -> None:
        super().__init__(name)
        self.__dict__["ask for the tests"] = ask

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__["ask for the tests"](name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            raise Unusable(f"the tests replace {name} of the program, which does not reach it")
        super().__setattr__(name, value)


_ENDS = ("StopIteration", "StopAsyncIteration")
_CAUGHT = ("raises", "assertRaises", "assertRaisesRegex", "suppress")
_OWN_LOOKS = ("__class__", "__doc__", "__dict__", "__module__")


class _Rewritten(ast.NodeTransformer):
    """Rewrites parts of the tests' code that would not work with a stand-in.

    ``assert x, y`` becomes ``if not x: failed()``: while answers are missing, a failure stops nothing. A handler of ``StopIteration`` also
    catches the exception that represents the program's. ``type(x)`` and ``x.__class__`` see through stand-ins.
    """

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        if _may_change_the_right(node.test):
            node.test = _right_first(node.test)
        failed = ast.Expr(ast.Call(ast.Name("__failed__", ast.Load()), [], []))
        return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [failed], []), node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.type = node.type and _with_stopped(node.type)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _CAUGHT and node.args:
            node.args[0] = _with_stopped(node.args[0])
        if name == "type" and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
            node.func = ast.copy_location(ast.Name("__type__", ast.Load()), node.func)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr not in _OWN_LOOKS or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.Call(ast.Name("__attribute__", ast.Load()), [node.value, ast.Constant(node.attr)], []), node)


def _may_change_the_right(test: ast.expr) -> bool:
    """Return whether it is ``f(xs) == sorted(xs)``: a program that empties ``xs`` and returns it must not be compared with an empty list.
    The right side may use only Python's own functions, so that calls of the program stay in order."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq) and isinstance(test.left, ast.Call)):
        return False
    passed = {argument.id for argument in test.left.args if isinstance(argument, ast.Name)}
    parts = list(ast.walk(test.comparators[0]))
    calls = [part.func for part in parts if isinstance(part, ast.Call)]
    plain = all(isinstance(function, ast.Name) and hasattr(builtins, function.id) for function in calls)
    used = {part.id for part in parts if isinstance(part, ast.Name)}
    return plain and bool(passed & used) and not any(isinstance(part, ast.Attribute) for part in parts)


def _right_first(test: Any) -> ast.expr:
    """Return ``f(xs) == y`` with ``y`` computed before ``f`` is called."""
    return ast.copy_location(ast.Call(ast.Name("__equal__", ast.Load()), [test.comparators[0], test.left], []), test)


def _with_stopped(kind: ast.expr) -> ast.expr:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    if not any(isinstance(one, ast.Name) and one.id in _ENDS for one in kinds):
        return kind
    return ast.copy_location(ast.Tuple([*kinds, ast.Name("__stopped__", ast.Load())], ast.Load()), kind)


class _Run:
    def __init__(self, tests: dict[str, Any], asked: list[Any], around: Surroundings) -> None:
        self.tests, self.questions = tests, Questions(asked, around)
        own = {*tests.get("names", ()), *stubs_of(tests.get("before", ""))}
        self.own = sorted(own)
        self.names = _Globals(self.own, self._missing)
        self.units: list[dict[str, Any]] = []
        self.unusable = ""

    def prepare(self) -> None:
        """Determine the owner of each name, and run the code of the prompt that the tests use."""
        tests, questions = self.tests, self.questions
        given = {"__failed__": self._failed, "__stopped__": Stopped, "__type__": type_of, "__attribute__": attribute_of}
        given |= {
            "next": next_of,
            "issubclass": is_subclass,
            "isinstance": is_instance,
            "hasattr": has_attribute,
            "vars": lambda one: attribute_of(one, "__dict__"),
            "__equal__": lambda right, left: left == right,
        }
        self.names.update({name: value for name, value in given.items() if name not in self.own})
        if tests.get("before"):
            plain = dict(self.names)
            self._execute_before(tests["before"])
            for name in self.own:
                self.names.pop(name, None)
            questions.brought |= {name: value for name, value in self.names.items() if plain.get(name) is not value}
            questions.shared.fields = fields_of(tests["before"])
            for name, value in questions.brought.items():
                if isinstance(value, type) and value.__module__ == "tests":
                    questions.brought_classes[name] = value
        texts = [tests.get("setup", ""), tests.get("file", ""), *tests.get("asserts", ())]
        self._whose = Names(texts, self.own, only="check" in tests, given=questions.brought)
        questions.classes = self._whose.classes

    def _execute_before(self, text: str) -> None:
        try:
            exec(compile(text, "before", "exec", dont_inherit=True), self.names)
        except BaseException as error:
            raise Unusable(f"before, the beginning of the program, cannot be run ({type(error).__name__}: {error})"[:300]) from None

    def _missing(self, name: str) -> Any:
        found = self._whose.of_library(name)
        return self.ask(name) if found is None else found

    def ask(self, name: str) -> Any:
        """Return the program's object of this name, or the prompt's, if the program need not define it."""
        if name in self.questions.brought:
            return self.questions.brought[name]
        value = self.questions.ask("name", {"g": name})
        if isinstance(value, Held | Unknown) and name in self.questions.classes:
            value.__dict__["_makes"] = True
        return value

    def _failed(self) -> None:
        if not self.questions.unknown:
            self._refuse_doubt()
            raise AssertionError

    def _refuse_doubt(self) -> None:
        """Raise Unusable if a failure followed a comparison that could not be made, since it is not a failure of the program."""
        if self.questions.doubt and not self.questions.unknown:
            raise Unusable("the tests compare an object of the program with a plain value by its own operators, which is unsupported")

    def execute(self, text: str) -> None:
        exec(self._compiled(text), self.names)

    def _compiled(self, text: str) -> CodeType:
        try:
            tree = _Rewritten().visit(ast.parse(text, "tests"))
            return compile(ast.fix_missing_locations(tree), "tests", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise Unusable(f"the tests cannot be read as Python ({type(error).__name__}: {error})") from None

    def each(self) -> Iterator[_Unit]:
        """Yield (name, function) of each part of the tests that can fail separately. Setup and file count only if they fail; a
        file without test functions counts as one test."""
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
        """Run all parts, one after another, in one process, as pytest would."""
        try:
            self.prepare()
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
        """Return how it failed, "" if it passed. A failure before any use of the program cannot judge it."""
        before = self.questions.uses
        try:
            function()
        except (Enough, Unusable):
            raise
        except Skipped:
            # After a use of the program, the program caused the skip, by an exception or by its result.
            return "Skipped" if self.questions.uses > before else ""
        except BaseException as error:
            name = type(error).__name__
            if isinstance(error, AssertionError):
                self._refuse_doubt()
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
        text = json.dumps(tests)
        if tests.get("numpy"):
            nothing_is_near_something()
            keep_arrays(of_nothing=False)
        if "async" in text:
            awaitable_stand_ins()
        run = _Run(tests, asked, Surroundings(text))
        if tests.get("numpy"):
            run.questions.delivered = without_items
        name = tests.get("module", "solution")
        sys.modules[name] = _Module(name, run.ask)
        if tests.get("random"):
            __import__("random").seed(0)  # the same calls in every round
        run.run()
        questions = run.questions
        json.dump(
            {
                "calls": questions.calls,
                "known": questions.known,
                "complete": not questions.unknown,
                "brought": sorted(questions.brought_classes),
                "units": run.units,
                "unusable": run.unusable,
            },
            channel,
        )
    os._exit(0)
