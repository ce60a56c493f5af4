r"""Inequalities joined by words: ``x<0 \text{ or } x>1`` is a union, ``x>0 \text{ and } x<1`` one interval, and neither is the other.

>>> connective(r"x<0 \text{ or } x>1")
'or'
>>> merged(r"x>0 \text{ and } x<1")
'0<x<1'
"""

from __future__ import annotations

import re

from rlcore_plugin_math.structure import VARIABLE, Relation, relation

__all__ = ["alternatives", "connective", "distance", "merged"]

_AND = re.compile(r" ?(?:\\text ?\{ ?,? ?and ?\}|(?<![A-Za-z\\])and(?![A-Za-z])|\\(?:land|wedge)(?![A-Za-z])) ?")
_OR = re.compile(r" ?(?:\\text ?\{ ?,? ?or ?\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee|cup)(?![A-Za-z])) ?")
_ORDER = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
_FAR = re.compile(rf"(?:\||\\lvert) ?({VARIABLE.pattern}) ?(?:\||\\rvert) ?(>|\\ge|>=) ?([^<>=|\\]+|\\[a-z]+[^<>=|]*)")
_SIGNS = {"<": "<", "<=": "\\le "}
_TURNED = {">": "<", ">=": "<="}


def connective(text: str) -> str:
    r"""How inequalities are joined: "and", "or" (``\cup`` too), "mixed" where both; "" without inequalities or words between."""
    joined_and, joined_or = bool(_AND.search(text)), bool(_OR.search(text))
    if not _ORDER.search(text) and "\\cup" not in text:
        return ""
    if joined_and and joined_or:
        return "mixed"
    return "and" if joined_and else "or" if joined_or else ""


def alternatives(text: str) -> bool:
    """True where "or" joins anything."""
    return bool(_OR.search(text))


def merged(text: str) -> str | None:
    """Two bounds of one variable, one on each side, as one chain; None for any other conjunction."""
    bounds = [_bound(_bare(item)) for item in _AND.split(text)]
    if len(bounds) != 2 or None in bounds:
        return None
    lower, upper = sorted((bound for bound in bounds if bound), key=lambda bound: bound[0])
    if (lower[0], upper[0]) != ("lower", "upper") or lower[1] != upper[1]:
        return None
    return f"{lower[3]}{_SIGNS[lower[2]]}{lower[1]}{_SIGNS[upper[2]]}{upper[3]}"


def distance(text: str) -> str | None:
    """``|x|>a`` as the union that it is; None for anything else."""
    match = _FAR.fullmatch(text)
    if match is None:
        return None
    below = "<" if match[2] == ">" else "\\le "
    return f"{match[1]}{below}-({match[3]}) \\text{{ or }} {match[1]}{match[2]} {match[3]}"


def _bare(item: str) -> str:
    inner = item.strip()
    return inner[1:-1].strip() if inner[:1] == "(" and inner[-1:] == ")" and not set("()") & set(inner[1:-1]) else inner


def _bound(item: str) -> tuple[str, str, str, str] | None:
    """("lower" or "upper", variable, sign, bound) of an inequality between a variable and something else."""
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
