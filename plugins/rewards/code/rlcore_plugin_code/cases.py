"""The column ``test_cases`` with inputs and outputs: the accepted shapes, the error for any other, and the choice and order of tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.suite import BadCases

__all__ = ["Case", "chosen", "column", "kind_name", "pairs", "read_cases", "table_of"]

_SHAPE = '{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}'
_LARGEST_MIB = 256


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a program that reads standard input. ``number``: its place in the row, from 1; ``others``: equally valid outputs."""

    number: int
    stdin: bytes
    expected: bytes
    others: tuple[bytes, ...] = ()

    @property
    def texts(self) -> tuple[bytes, ...]:
        """All its texts, as bytes."""
        return (self.stdin, self.expected, *self.others)


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def texts(self) -> tuple[bytes, ...]: ...


_C = TypeVar("_C", bound=_Numbered)


def read_cases(table: Any, *, may_be_empty: bool = False) -> tuple[Case, ...]:
    """Return the tests of a row, in its order. The column is an object with two lists of equal length, or a JSON text of one; an input or
    output is a text, or a list of lines. ``accepted`` instead of ``outputs`` lists all valid outputs of each input. ``may_be_empty``: the
    outputs may be missing or empty, since a checker judges.

    :raises BadCases: it is anything else, is empty, or expects no output.
    """
    table = table_of(table)
    if may_be_empty and "outputs" not in table and "accepted" not in table:
        table = {**table, "outputs": [""] * len(column(table, "inputs"))}
    cases = tuple(_case(number, stdin, valid) for number, (stdin, valid) in enumerate(pairs(table), start=1))
    size = sum(len(text) for case in cases for text in case.texts) / (1 << 20)
    if size > _LARGEST_MIB:
        raise BadCases(f"test_cases has {size:.1f} MiB; a row may have {_LARGEST_MIB} MiB")
    if not may_be_empty and (empty := [case.number for case in cases if not all(text.split() for text in (case.expected, *case.others))]):
        raise BadCases(f"output {empty[0]} of test_cases is empty, so a program that does nothing would pass; remove that test")
    return cases


def pairs(table: Mapping[str, Any]) -> list[tuple[Any, list[Any]]]:
    """Return (input, valid outputs) of each test; BadCases if the lists do not match."""
    several = "accepted" in table
    if several and table.get("outputs") is not None:
        raise BadCases("test_cases has both outputs and accepted; keep the one that holds every valid output")
    inputs, outputs = column(table, "inputs"), column(table, "accepted" if several else "outputs")
    if len(inputs) != len(outputs):
        raise BadCases(f"test_cases has {len(inputs)} inputs and {len(outputs)} outputs; each input needs its output")
    if not inputs:
        raise BadCases("test_cases has no test; a row needs at least one; otherwise every program would be right")
    if several and (bad := [number for number, valid in enumerate(outputs, start=1) if not isinstance(valid, list | tuple) or not valid]):
        raise BadCases(f"accepted {bad[0]} of test_cases must be a list of the valid outputs, at least one")
    return [(stdin, list(valid) if several else [valid]) for stdin, valid in zip(inputs, outputs, strict=True)]


def _case(number: int, stdin: Any, valid: Sequence[Any]) -> Case:
    first, *others = (_text(output, "output", number) for output in valid)
    return Case(number, _text(stdin, "input", number), first, tuple(others))


def chosen(cases: Sequence[_C], most: int) -> list[_C]:
    """Return at most ``most`` of the tests, in an order that depends only on their content. It is the same for every response and on every
    machine, but not the row's order, on which no program should rely."""
    digest = hashlib.sha256()
    for case in cases:
        for text in case.texts:
            digest.update(b"%d " % len(text) + text)
    key = digest.digest()
    return sorted(cases, key=lambda case: hashlib.sha256(key + b"%d" % case.number).digest())[:most]


def table_of(value: Any) -> Mapping[str, Any]:
    """Return the column as an object; it may be a JSON text of one. BadCases if it is neither."""
    table = value
    if isinstance(value, str):
        try:
            table = read_json(value)
        except (ValueError, RecursionError) as error:
            raise BadCases(f"test_cases is text that is not JSON ({str(error)[:80]}); it must be {_SHAPE}") from None
    if not isinstance(table, Mapping):
        raise BadCases(f"test_cases must be {_SHAPE}, but is {kind_name(table)}")
    return table


def column(table: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return a list of the table; BadCases if there is none."""
    values = table.get(name)
    if not isinstance(values, list | tuple):
        found = f"{name} is {kind_name(values)}" if name in table else f"there is no {name!r}"
        raise BadCases(f"test_cases must be {_SHAPE}, but {found}")
    return values


def _text(value: Any, name: str, number: int) -> bytes:
    if isinstance(value, list | tuple) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise BadCases(f"{name} {number} of test_cases is {kind_name(value)}; it must be text, or a list of lines")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadCases(f"{name} {number} of test_cases contains half a surrogate pair, which is not Unicode text") from None


def kind_name(value: Any) -> str:
    """Return the name of a value's kind for an error message."""
    return "null" if value is None else "a list of other things" if isinstance(value, list | tuple) else f"of type {type(value).__name__}"
