r"""Congruences: the numbers that leave one of some remainders. ``\pmod{4}`` has many spellings, and 5 is 1 modulo 4.

>>> congruence(r"x\equiv 1,3 \ (\text{mod } 8)")
Congruence(name='x', remainders=('1', '3'), modulus='8', certain=True)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlcore_plugin_math.normal import compact
from rlcore_plugin_math.quantity import quantity
from rlcore_plugin_math.structure import VARIABLE, listing, paired

__all__ = ["Congruence", "congruence", "same_congruence"]

_LONGEST = 400
_WORDED = re.compile(r"\\text ?\{([^{}]*(?:mod|[()])[^{}]*)\}")
_MOD = r"(?:\\[pb]?mod(?![A-Za-z])|(?<![A-Za-z\\])mod(?:ulo)?(?![A-Za-z]))"
_VALUE = r"(?:\{ ?([^{}]{1,40}?) ?\}|([0-9]+|[A-Za-z](?:\^ ?(?:[0-9]|\{[0-9A-Za-z]+\}))?))"
_CLASS = re.compile(
    rf"(?P<head>.*[^ (,;\\]) ?,? ?(?P<marked>[(\[] ?{_MOD}|\\pmod|{_MOD}) ?{_VALUE} ?(?P<closed>[)\]]?)"
    r"|(?P<short>.*\\equiv.*[^ ]) ?\[ ?([0-9]+|[A-Za-z]) ?\]",
    re.DOTALL,
)
_NAMED = re.compile(rf"({VARIABLE.pattern}) ?(?:\\equiv|=) ?(.*)", re.DOTALL)
_JOINED = re.compile(r" ?(?:\\text ?\{ ?,? ?(?:or|and) ?\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])|[,;]) ?(?=[^,;]*\\equiv)")


@dataclass(frozen=True, slots=True)
class Congruence:
    """``name`` of the unknown, "" if it has none. ``certain``: it cannot be the operation ``17 mod 5``, which is 2."""

    name: str
    remainders: tuple[str, ...]
    modulus: str
    certain: bool


def congruence(text: str) -> Congruence | None:
    r"""Return the congruence that a normalised text is, also one of several joined ones (``x\equiv 1 \pmod 8, x\equiv 7 \pmod 8``)."""
    if len(text) > _LONGEST or ("mod" not in text and "\\equiv" not in text):
        return None
    said = " ".join(_WORDED.sub(r" \1 ", text).split())
    parts = _JOINED.split(said) if said.count("\\equiv") > 1 else [said]
    found = [_one(part) for part in parts]
    first = found[0]
    if first is None or any(part is None or (part.name, part.modulus) != (first.name, first.modulus) for part in found):
        return None
    return Congruence(first.name, tuple(item for part in found if part for item in part.remainders), first.modulus, first.certain)


def _one(said: str) -> Congruence | None:
    match = _CLASS.fullmatch(said)
    if match is None:
        return None
    opened = (match["marked"] or "")[:1] in ("(", "[")
    if bool(match["closed"]) is not opened:
        return None
    head = match["head"] or match["short"]
    named = _NAMED.fullmatch(head)
    rest = named[2] if named else head
    if "\\equiv" in rest or "mod" in rest or "=" in rest or not rest:
        return None
    items = listing(rest)
    if items is not None and items.brackets:
        return None
    certain = bool(named) or match["marked"] not in ("\\bmod", "\\mod", "mod", "modulo")
    return Congruence(named[1] if named else "", items.items if items else (rest,), compact(match[3] or match[4] or match[7]), certain)


def same_congruence(gold: Congruence, answer: Congruence, same: Callable[[str, str], bool]) -> bool:
    """Return whether both are the same numbers. ``same`` compares remainders that are not whole numbers, or belong to a letter."""
    if gold.name and answer.name and gold.name != answer.name:
        return False
    if gold.modulus != answer.modulus or len(gold.remainders) != len(answer.remainders):
        return False
    whole = [_reduced(side) for side in (gold, answer)]
    if whole[0] is not None and whole[1] is not None:
        return len(set(whole[0])) == len(whole[0]) and sorted(whole[0]) == sorted(whole[1])
    return paired(gold.remainders, answer.remainders, same)


def _reduced(side: Congruence) -> list[int] | None:
    """Return the remainders as the smallest numbers from 0, None if the modulus or one of them is not a whole number."""
    values = [quantity(item) for item in side.remainders]
    if not side.modulus.isdecimal() or len(side.modulus) > 20 or int(side.modulus) == 0:
        return None
    if any(value is None or value.unit or value.decimal or value.value.denominator != 1 for value in values):
        return None
    return [int(value.value) % int(side.modulus) for value in values if value]
