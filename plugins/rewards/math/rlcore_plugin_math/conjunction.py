r"""Inequalities joined by words: ``x<0 \text{ or } x>1`` is a union, ``x>0 \text{ and } x<1`` one interval, and the two never match.

>>> connective(r"x<0 \text{ or } x>1")
'or'
>>> merged(r"x>0 \text{ and } x<1")
'0<x<1'
"""

from __future__ import annotations

import re

from rlcore_plugin_math.normal import compact
from rlcore_plugin_math.structure import VARIABLE, Listing, Relation, as_interval, listing, relation

__all__ = ["alternatives", "connective", "distance", "excluded", "joined_by_or", "merged"]

_AND = re.compile(r" ?(?:\\text ?\{ ?,? ?and ?\}|(?<![A-Za-z\\])and(?![A-Za-z])|\\(?:land|wedge)(?![A-Za-z])) ?")
_OR = re.compile(r" ?(?:\\text ?\{ ?,? ?or ?\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee|cup)(?![A-Za-z])) ?")
_ORDER = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
_FAR = re.compile(rf"(?:\||\\lvert) ?({VARIABLE.pattern}) ?(?:\||\\rvert) ?(>|\\ge|>=) ?([^<>=|\\]+|\\[a-z]+[^<>=|]*)")
_MEMBER = re.compile(rf"({VARIABLE.pattern}) ?\\in(?![A-Za-z]) ?(.*)", re.DOTALL)
_WITHOUT = re.compile(r"(?:\\mathbb\{R\}|\( ?-\\infty ?, ?\+?\\infty ?\)) ?(?:\\setminus|\\backslash|-) ?\\\{([^{}]*)\\\}")
_RING = re.compile(
    rf"([^<>|]+?) ?(<|\\le(?![A-Za-z])) ?(?:\||\\lvert) ?({VARIABLE.pattern}) ?(?:\||\\rvert) ?(<|\\le(?![A-Za-z])) ?([^<>|]+)"
)
_SIGNS = {"<": "<", "<=": "\\le "}
_TURNED = {">": "<", ">=": "<="}


def connective(text: str) -> str:
    r"""Return how inequalities are joined: "and", "or" (also ``\cup``), "mixed" if both; "" without inequalities or joining words."""
    joined_and, joined_or = bool(_AND.search(text)), bool(_OR.search(text))
    if not _ORDER.search(text) and "\\cup" not in text:
        return ""
    if joined_and and joined_or:
        return "mixed"
    return "and" if joined_and else "or" if joined_or else ""


def alternatives(text: str) -> bool:
    """Return whether "or" joins anything."""
    return bool(_OR.search(text))


def joined_by_or(text: str) -> list[str]:
    """Return the alternatives of words joined by "or", sorted: ``red or blue``."""
    return sorted(item.strip() for item in re.split(r",? or |, ", text))


def excluded(text: str) -> tuple[str, tuple[str, ...]] | None:
    r"""Return (the unknown or "", the points) for all real numbers except some: ``x\ne 1, x\ne 2``, ``\mathbb{R}\setminus\{1,2\}``,
    ``(-\infty,1)\cup(1,2)\cup(2,\infty)``, ``x<1 \text{ or } x>1``. None for anything else."""
    if "\\ne" not in text and "\\setminus" not in text and "\\infty" not in text and not ("<" in text and ">" in text):
        return None
    name, rest = (match[1], match[2]) if (match := _MEMBER.fullmatch(text)) else ("", text)
    if match := _WITHOUT.fullmatch(rest):
        return name, tuple(item.strip() for item in match[1].split(","))
    return _unequal(text) or _gaps(name, rest)


def _unequal(text: str) -> tuple[str, tuple[str, ...]] | None:
    found = [relation(item) for item in re.split(rf",(?! ?[0-9-])|{_AND.pattern}", text)]
    names = {side.parts[0] for side in found if side and side.operators == ("!=",)}
    if len(names) != 1 or not all(side and side.operators == ("!=",) for side in found) or not VARIABLE.fullmatch(name := names.pop()):
        return None
    return name, tuple(point.strip() for side in found if side for point in side.parts[1].split(","))


def _gaps(name: str, text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the unknown and the points of open intervals that leave out only their ends."""
    pieces: dict[str, Listing] = {}
    for item in _OR.split(text):
        side = relation(item)
        named = as_interval(side) if side else None
        found = named[1] if named else listing(item)
        if found is None or found.brackets != "()" or len(found.items) != 2 or (named and name not in ("", named[0])):
            return None
        name = named[0] if named else name
        pieces[compact(found.items[0])] = found
    points, low = [], "-\\infty"
    while low in pieces:
        low = compact(pieces.pop(low).items[1])
        points.append(low)
    return (name, tuple(points[:-1])) if not pieces and len(points) > 1 and low in ("\\infty", "+\\infty") else None


def merged(text: str) -> str | None:
    """Return two bounds of one variable, one on each side, as one chain; None for any other conjunction."""
    bounds = [_bound(_bare(item)) for item in _AND.split(text)]
    if len(bounds) != 2 or None in bounds:
        return None
    lower, upper = sorted((bound for bound in bounds if bound), key=lambda bound: bound[0])
    if (lower[0], upper[0]) != ("lower", "upper") or lower[1] != upper[1]:
        return None
    return f"{lower[3]}{_SIGNS[lower[2]]}{lower[1]}{_SIGNS[upper[2]]}{upper[3]}"


def distance(text: str) -> str | None:
    """Return ``|x|>a`` and ``a<|x|<b`` as the equivalent unions; None for anything else."""
    if ring := _RING.fullmatch(text):
        low, first, name, second, high = ring.groups()
        return f"-({high}) {second} {name} {first} -({low}) \\text{{ or }} {low} {first} {name} {second} {high}"
    match = _FAR.fullmatch(text)
    if match is None:
        return None
    below = "<" if match[2] == ">" else "\\le "
    return f"{match[1]}{below}-({match[3]}) \\text{{ or }} {match[1]}{match[2]} {match[3]}"


def _bare(item: str) -> str:
    inner = item.strip()
    return inner[1:-1].strip() if inner[:1] == "(" and inner[-1:] == ")" and not set("()") & set(inner[1:-1]) else inner


def _bound(item: str) -> tuple[str, str, str, str] | None:
    """Return ("lower" or "upper", variable, sign, bound) of an inequality between a variable and something else."""
    found: Relation | None = relation(item)
    if found is None or len(found.parts) != 2 or found.operators[0] not in ("<", "<=", ">", ">="):
        return None
    (left, right), sign = found.parts, found.operators[0]
    if sign in _TURNED:
        left, right, sign = right, left, _TURNED[sign]
    if VARIABLE.fullmatch(left) and not VARIABLE.fullmatch(right):
        return "upper", left, sign, right
    if VARIABLE.fullmatch(right) and not VARIABLE.fullmatch(left):
        return "lower", right, sign, left
    return None
