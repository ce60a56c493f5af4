"""Decides whether the result of a call is the expected one. Pure, in the host process, on the output of the program's side
(``inside.wire``), which may be anything.

It compares like Python's ``==`` on plain values, with which the data sets were checked: ``True`` is ``1``, ``3.0`` is ``3``. A tuple also
equals the list of its items, since expected results come as JSON, and any number within the tolerance equals an expected fraction. A text
equals only itself: ``"0.5"`` is not a number. No value of a program is put into a table, where its keys could be chosen to collide.
"""

from __future__ import annotations

from typing import Any

from rlcore_plugin_code.compare import near
from rlcore_plugin_code.digits import decimal

__all__ = ["same_value"]


def same_value(expected: Any, found: Any, *, absolute: float, relative: float) -> bool:
    """Compare ``expected``, plain JSON, with ``found``, an encoded value. RecursionError if either is nested very deep."""
    if isinstance(expected, bool | int | float):
        return _same_number(expected, found, absolute, relative)
    if isinstance(expected, list | tuple):
        items = _items(found)
        if not isinstance(items, list) or len(items) != len(expected):
            return False
        return all(same_value(one, two, absolute=absolute, relative=relative) for one, two in zip(expected, items, strict=True))
    if isinstance(expected, dict):
        return _same_table(expected, found, absolute, relative)
    return type(expected) is type(found) and bool(expected == found)  # text and None


def _items(tree: Any) -> Any:
    """Return the items of a tuple, with names or without."""
    if isinstance(tree, dict) and set(tree) == {"t"}:
        return tree["t"]
    named = tree.get("y") if isinstance(tree, dict) and len(tree) == 1 else None
    return named[-1] if isinstance(named, list) and named else tree


def _number(tree: Any) -> int | float | None:
    if isinstance(tree, int | float):
        return tree
    if isinstance(tree, dict) and set(tree) == {"i"} and isinstance(tree["i"], str):
        try:
            return int(tree["i"], 16)
        except ValueError:
            return None
    if isinstance(tree, dict) and set(tree) == {"f"} and tree["f"] in ("inf", "-inf", "nan"):
        return float(tree["f"])
    return None


def _same_number(expected: int | float, found: Any, absolute: float, relative: float) -> bool:
    number = _number(found)
    if number is None:
        return False
    if expected == number:
        return True
    if not isinstance(expected, float):
        return False
    try:
        return near(expected, float(number), absolute, relative)
    except OverflowError:
        return False


def _same_table(expected: dict[Any, Any], found: Any, absolute: float, relative: float) -> bool:
    pairs = found.get("d") if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(pairs, list) or len(pairs) != len(expected):
        return False
    seen = set()
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            return False
        key = _key(expected, pair[0])
        if key is None or not same_value(expected[key], pair[1], absolute=absolute, relative=relative):
            return False
        seen.add(key)
    return len(seen) == len(expected)


def _key(expected: dict[Any, Any], tree: Any) -> Any:
    """Return the expected key that a found one is; JSON writes whole numbers as text."""
    if isinstance(tree, str):
        return tree if tree in expected else None
    number = _number(tree)
    if number is None or isinstance(number, bool | float):
        return None
    try:
        written = decimal(number)
    except ValueError:  # more digits than any expected key has
        return None
    return written if written in expected else None
