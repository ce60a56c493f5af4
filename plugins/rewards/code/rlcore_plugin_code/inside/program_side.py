"""Runs in the sandbox beside a program: calls what the calls name, and writes what came of each. Holds inputs only; nothing that is
expected is here, so a program that takes this file over can write nothing but answers of its own.

Files of the working folder: ``names.py``, run first in the same module, whose names are none of the program's; ``before.py``, a beginning
of the program; ``solution.py``; ``calls.json``, a list of calls (``stand_ins`` says how they read). Standard output is taken for the
answers, one line of JSON a call; what the program prints goes to standard error.
"""

import json
import os
import sys
from types import ModuleType
from typing import Any

from rlcore_plugin_code.inside.wire import decode, encode

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

    def hold(self, value: Any) -> dict[str, int]:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.held)
            self.held.append(value)
        return {"o": self.numbers[id(value)]}

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
    "list": list,
    "next": next,
    "str": str,
    "repr": repr,
    "set": setattr,
    "item": lambda one, key: one[key],
    "put": lambda one, key, value: one.__setitem__(key, value),
    "same": lambda one, two: bool(one == two),
    "less": lambda one, two: bool(one < two),
    "add": lambda one, two: one + two,
    "subtract": lambda one, two: one - two,
    "multiply": lambda one, two: one * two,
}


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
        kind = type(error)
        plain = next((base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"), "Exception")
        return {"raised": [kind.__name__, plain, str(error)[:_LONGEST]]}


def _refers(tree: Any) -> bool:
    return isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)) in ("g", "k", "o")


def serve() -> None:
    """Load the program, answer every call, end. An error while it loads ends it as it would end ``python solution.py``."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as channel:
        os.dup2(2, 1)
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
