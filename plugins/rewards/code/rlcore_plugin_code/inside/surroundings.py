"""Surroundings that tests give to a call of the program: typed input, captured output, files. The program runs elsewhere, so each of them
is sent with the call, or the tests are refused."""

import builtins
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rlcore_plugin_code.inside.wire import Unusable

__all__ = ["REPLACEABLE", "Surroundings"]

_MOST_LINES = 100  # typed in one call
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
REPLACEABLE = {("builtins", "input"), ("sys", "stdin"), ("sys", "stdout"), ("sys", "stderr")}
"""Objects that tests may replace: the replacements are sent with their calls."""
_NOT_CARRIED = (
    "inspect.",
    "dataclasses.asdict",
    "import asdict",
    "is_dataclass(",
    "assertWarns",
    "assertLogs",
    "catch_warnings",
    "os.environ[",
    "patch.dict",
    "sys.argv",
)
_HEARING = ("stdout", "capsys", "capfd")


class Surroundings:
    """The surroundings of one run of the tests; ``text``: all their code."""

    def __init__(self, text: str) -> None:
        self._input, self._stdin, self._print = builtins.input, sys.stdin, builtins.print
        self._hears = any(word in text for word in _HEARING)
        self._text = text
        self._lines: dict[int, list[Any]] = {}
        self._taken = 0
        self._wrote = ""
        if "open" in text or "tempfile" in text or "write" in text:
            sys.addaudithook(self._look)
        if "mock" in text:
            _limit_mocks()

    def before(self) -> dict[str, Any]:
        """Return the fields to send with a call."""
        if builtins.print is not self._print:
            raise Unusable("the tests replace print, which does not reach the program; let them capture standard output")
        if lacking := next((word for word in _NOT_CARRIED if word in self._text), ""):
            raise Unusable(f"the tests use {lacking}, which does not reach the program")
        if self._wrote:
            raise Unusable(f"the tests write the file {self._wrote[:80]!r}, which the program cannot see")
        typed = self._typed()
        silent = builtins.input is not self._input  # a replacement of input prints no prompt
        return ({} if typed is None else {"typed": typed, "silent": silent}) | ({"heard": True} if self._hears else {})

    def after(self, answer: dict[str, Any]) -> None:
        """Show the tests the output of the program, and remove the lines that it read from their input."""
        if printed := answer.get("printed"):
            sys.stdout.write(printed)
        taken = answer.get("taken", 0)
        if builtins.input is not self._input:
            del self._lines[id(builtins.input)][:taken]
            if hasattr(builtins.input, "call_count"):
                builtins.input.call_count += taken
        elif sys.stdin is not self._stdin:
            for _ in range(taken):
                sys.stdin.readline()

    def _typed(self) -> list[str] | None:
        if builtins.input is not self._input:
            lines = self._lines.setdefault(id(builtins.input), [])
            lines += _drawn(builtins.input, _MOST_LINES - len(lines))
            return [str(line) for line in lines]
        if sys.stdin is self._stdin:
            return None
        if not isinstance(sys.stdin, io.StringIO):
            raise Unusable(f"the tests replace sys.stdin by a {type(sys.stdin).__name__}; only io.StringIO reaches the program")
        place = sys.stdin.tell()
        lines = sys.stdin.read().splitlines()
        sys.stdin.seek(place)
        return lines

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record files that the tests write, and refuse those that only the program can have written."""
        if event != "open" or isinstance(arguments[0], int):
            return
        path = os.fsdecode(arguments[0])
        if arguments[2] & _WRITES:
            self._wrote = path if path != os.devnull else self._wrote
        elif path in self._text and not self._wrote and not os.path.exists(path) and not path.endswith((".py", ".pyc", ".so")):  # noqa: PTH110
            raise Unusable(f"the tests read the file {path[:80]!r}, which is not here; the program's files stay in its own sandbox")


def _drawn(function: Callable[..., Any], most: int) -> list[Any]:
    """Return so many lines of a replacement of ``input``, fewer if it has no more. A mock is not called, since tests may count its
    calls."""
    if not hasattr(function, "call_count"):
        source = function
    elif function.side_effect is None:
        return [function.return_value] * most
    elif callable(function.side_effect):
        source = function.side_effect
    else:
        return [line for line, _ in zip(function.side_effect, range(most), strict=False)]
    lines: list[Any] = []
    with suppress(StopIteration, IndexError, EOFError):
        while len(lines) < most:
            lines.append(source(""))
    return lines


def _limit_mocks() -> None:
    """Refuse patches that would not reach the program."""
    from unittest import mock

    enter = mock._patch.__enter__

    def limited(patch: Any) -> Any:
        target = patch.getter()
        where = getattr(target, "__name__", "")
        if isinstance(target, type(os)) and (where, patch.attribute) not in REPLACEABLE:
            raise Unusable(f"the tests patch {where}.{patch.attribute}, which does not reach the program")
        return enter(patch)

    mock._patch.__enter__ = limited
