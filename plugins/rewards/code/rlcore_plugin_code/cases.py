"""From the column ``test_cases`` to runs: which shapes are accepted, the sentence where one is not, which tests run and in what order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BadCases", "Case", "chosen", "read_cases"]

_SHAPE = '{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}'
_LARGEST_MIB = 256


class BadCases(ValueError):
    """The column cannot be used; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test. ``number``: its place in the row, from 1."""

    number: int
    stdin: bytes
    expected: bytes


def read_cases(column: Any) -> tuple[Case, ...]:
    """The tests of a row, in its order. The column is an object with two lists of equal length, or a JSON text of one; an input or output
    is a text, or a list of lines.

    :raises BadCases: it is anything else, is empty, or expects no output.
    """
    table = _table(column)
    inputs, outputs = _column(table, "inputs"), _column(table, "outputs")
    if len(inputs) != len(outputs):
        raise BadCases(f"test_cases has {len(inputs)} inputs and {len(outputs)} outputs; each input needs its output")
    if not inputs:
        raise BadCases("test_cases has no test; a row needs at least one, or every program would be right")
    cases = tuple(
        Case(number, _text(stdin, "input", number), _text(expected, "output", number))
        for number, (stdin, expected) in enumerate(zip(inputs, outputs, strict=True), start=1)
    )
    size = sum(len(case.stdin) + len(case.expected) for case in cases) / (1 << 20)
    if size > _LARGEST_MIB:
        raise BadCases(f"test_cases holds {size:.1f} MiB; a row may hold {_LARGEST_MIB} MiB")
    if empty := [case.number for case in cases if not case.expected.split()]:
        raise BadCases(f"output {empty[0]} of test_cases is empty, and so a program that does nothing would pass; remove that test")
    return cases


def chosen(cases: Sequence[Case], most: int) -> list[Case]:
    """At most ``most`` of the tests, in an order that follows from their content alone: the same for every response and on every machine,
    and not the row's order, on which no program should rely."""
    digest = hashlib.sha256()
    for case in cases:
        for text in (case.stdin, case.expected):
            digest.update(b"%d " % len(text) + text)
    key = digest.digest()
    return sorted(cases, key=lambda case: hashlib.sha256(key + b"%d" % case.number).digest())[:most]


def _table(column: Any) -> Mapping[str, Any]:
    table = column
    if isinstance(column, str):
        try:
            table = json.loads(column)
        except (ValueError, RecursionError) as error:
            raise BadCases(f"test_cases is a text that is not JSON ({str(error)[:80]}); it must read {_SHAPE}") from None
    if not isinstance(table, Mapping):
        raise BadCases(f"test_cases must read {_SHAPE}, and not be {_kind(table)}")
    if table.get("fn_name"):
        raise BadCases("test_cases names a function (fn_name); only programs from standard input to standard output can be judged")
    return table


def _column(table: Mapping[str, Any], name: str) -> Sequence[Any]:
    values = table.get(name)
    if not isinstance(values, list | tuple):
        found = f"{name} is {_kind(values)}" if name in table else f"there is no {name!r}"
        raise BadCases(f"test_cases must read {_SHAPE}, but {found}")
    return values


def _text(value: Any, name: str, number: int) -> bytes:
    if isinstance(value, list | tuple) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise BadCases(f"{name} {number} of test_cases is {_kind(value)}; it must be a text, or a list of lines")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadCases(f"{name} {number} of test_cases holds half a surrogate pair, which is no Unicode text") from None


def _kind(value: Any) -> str:
    return "null" if value is None else "a list of other things" if isinstance(value, list | tuple) else f"of type {type(value).__name__}"
