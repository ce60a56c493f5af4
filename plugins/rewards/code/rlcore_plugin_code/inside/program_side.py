"""Runs in the sandbox beside a program: calls what the calls name, and writes what came of each. Holds inputs only; nothing that is
expected is here, so a program that takes this file over can write nothing but answers of its own.

Files of the working folder: ``names.py``, run first in the same module, whose names are none of the program's; ``before.py``, a beginning
of the program; ``solution.py``; ``imports.py``, if the tests use NumPy; ``calls.json``, a list of calls (``stand_ins`` says how they read).
Standard output is taken for the answers, one line of JSON a call; what the program prints goes to standard error.
"""

import json
import os
import sys
from itertools import islice
from types import ModuleType
from typing import Any

from rlcore_plugin_code.inside.wire import decode, encode, keep_arrays

__all__ = ["serve"]

_NAME = "solution"
_LONGEST = 500


class _Program:
    """The module that the program made, and the objects that the other side holds by number."""

    def __init__(self) -> None:
        self.module = ModuleType(_NAME)
        self.module.__dict__.update(__builtins__=__builtins__, __file__="solution.py")
        sys.modules[_NAME] = self.module
        self.given: dict[str, Any] = {}
        self.stub: dict[str, Any] = {}
        self.results: list[Any] = []
        self.held: list[Any] = []
        self.numbers: dict[int, int] = {}

    def load(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123
            exec(compile(file.read(), path, "exec", dont_inherit=True), self.module.__dict__)

    def resolve(self, tree: dict[str, Any]) -> Any:
        """What a reference names: ``g`` a name of the program, ``k`` the result of an earlier call, ``o`` an object by its number."""
        ((tag, content),) = tree.items()
        if tag == "g":
            return self.named(content)
        return self.results[content] if tag == "k" else self.held[content]

    def named(self, name: str) -> Any:
        names = self.module.__dict__
        own = name in names and not (name in self.given and names[name] is self.given[name])
        solution = names.get("Solution")
        if hasattr(solution, name) and not (own and names[name] is not self.stub.get(name)):
            return getattr(solution(), name)
        if own:
            return names[name]
        raise NameError(f"the program defines no {name}")

    def hold(self, value: Any) -> dict[str, Any]:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.held)
            self.held.append(value)
        held = {"o": self.numbers[id(value)]}
        return held | ({"raises": _kind(value)} if isinstance(value, type) and issubclass(value, BaseException) else {})

    def does(self, call: dict[str, Any]) -> tuple[Any, list[Any]]:
        """(result, positional arguments afterwards)."""
        target = decode(call["of"], self.resolve)
        if call["do"] == "name":
            return target, []
        if call["do"] == "get":
            return getattr(target, call["name"]), []
        arguments = [decode(item, self.resolve) for item in call["args"]]
        if call["do"] == "own":
            return _OWN[call["name"]](target, *arguments), []
        keywords = {key: decode(item, self.resolve) for key, item in call["keywords"].items()}
        return target(*arguments, **keywords), arguments


_OWN = {
    "bool": bool,
    "len": len,
    "list": lambda one, start, size: _items(one, start, size),
    "next": next,
    "str": str,
    "repr": repr,
    "hash": hash,
    "int": int,
    "float": float,
    "abs": abs,
    "neg": lambda one: -one,
    "kind": lambda one, two: isinstance(two, one),
    "enter": lambda one: one.__enter__(),
    "exit": lambda one: one.__exit__(None, None, None),
    "at_most": lambda one, two: bool(one <= two),
    "set": setattr,
    "item": lambda one, key: one[key],
    "put": lambda one, key, value: one.__setitem__(key, value),
    "same": lambda one, two: bool(one == two),
    "less": lambda one, two: bool(one < two),
    "add": lambda one, two: one + two,
    "subtract": lambda one, two: one - two,
    "multiply": lambda one, two: one * two,
}


def _items(one: Any, start: int, size: int) -> list[Any]:
    """So many items from ``start`` on; of what is used up by reading, the next ones."""
    source = iter(one)
    start = 0 if source is one else start
    return list(islice(source, start, start + size))


def _kind(kind: type) -> list[Any]:
    """[names of the program's own classes, the most special first; the class of Python that they are made from]."""
    names = []
    for base in kind.__mro__:
        if base.__module__ == "builtins":
            return [names, base.__name__]
        names.append(base.__name__)
    return [names, "Exception"]


def _error(program: _Program, error: BaseException) -> list[Any]:
    """[class of Python, text, names of the program's own classes, arguments, attributes]."""
    names, plain = _kind(type(error))
    text = str(error)[:_LONGEST]
    try:
        arguments = [encode(item, program.hold) for item in error.args]
        attributes = [[name, encode(item, program.hold)] for name, item in vars(error).items() if not name.startswith("_")]
        if len(json.dumps([arguments, attributes])) <= _LONGEST:
            return [plain, text, names, arguments, attributes]
    except BaseException:
        pass
    return [plain, text, names, [text], []]


def _answer(program: _Program, call: dict[str, Any]) -> dict[str, Any]:
    try:
        result, arguments = program.does(call)
        program.results.append(result)
        answer = {"value": encode(result, program.hold)}
        after = [encode(item, program.hold) for item in arguments]
        changed = [[place, item] for place, item in enumerate(after) if item != call["args"][place] and not _refers(call["args"][place])]
        return answer | ({"changed": changed} if changed else {})
    except BaseException as error:
        if len(program.results) <= call["number"]:
            program.results.append(None)
        return {"raised": _error(program, error)}


def _refers(tree: Any) -> bool:
    return isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)) in ("g", "k", "o")


def serve() -> None:
    """Load the program, answer every call, end. An error while it loads ends it as it would end ``python solution.py``."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as channel:
        os.dup2(2, 1)
        if os.path.exists("imports.py"):  # noqa: PTH110
            keep_arrays(of_nothing=True)
        program = _Program()
        for path in ("names.py", "before.py", "solution.py"):
            if os.path.exists(path):  # noqa: PTH110
                program.load(path)
            if path == "names.py":
                program.given = dict(program.module.__dict__)
            elif path == "before.py":
                program.stub = dict(program.module.__dict__)
        with open("calls.json", encoding="ascii") as file:  # noqa: PTH123
            calls = json.load(file)
        for number, call in enumerate(calls):
            channel.write(json.dumps(_answer(program, {**call, "number": number})) + "\n")
            channel.flush()
    os._exit(0)
