r"""Splits an answer into parts: lists, sets, intervals, relations, matrices. The parts are then compared one by one.

>>> listing("(1, 2]")
Listing(brackets='(]', items=('1', '2'))
>>> relation("0<x\\le 1")
Relation(parts=('0', 'x', '1'), operators=('<', '<='))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlcore_plugin_math.quantity import quantity

__all__ = ["Listing", "Relation", "as_interval", "balanced", "is_label", "label_first", "leading_sign", "listing", "matrix", "nested_signs"]
__all__ += ["VARIABLE", "assignments", "paired", "point", "relation", "same_label", "split_outside"]

_TOKEN = re.compile(r"\\[{}]|\\[A-Za-z]+|\\.|<=|>=|[^\\]|\\")
_OPEN = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_CLOSE = frozenset(_OPEN.values())
_MIXED_CLOSE = {"(": {")", "]"}, "[": {"]", ")"}, "{": {"}"}, "\\{": {"\\}"}}
_OPERATORS = {"=": "=", "<": "<", ">": ">", "\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\in": "in", "\\approx": "="}


@dataclass(frozen=True, slots=True)
class Listing:
    """Several items. ``brackets``: "" for none, "()", "[]", "[)", "(]", "{}" for a set, "<>" for a vector, "U" for a union."""

    brackets: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """``parts`` with ``operators`` (=, <, >, <=, >=, !=, in) between them, one fewer."""

    parts: tuple[str, ...]
    operators: tuple[str, ...]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def balanced(text: str) -> bool:
    """Return whether every bracket is closed; half-open intervals are allowed."""
    stack: list[str] = []
    for token in _tokens(text):
        if token in _OPEN:
            stack.append(token)
        elif token in _CLOSE and (not stack or token not in _MIXED_CLOSE[stack.pop()]):
            return False
    return not stack


def split_outside(text: str, separators: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (pieces, the separators between them), outside all brackets."""
    pieces, found, depth = [""], [], 0
    angles = text.count("\\langle") == text.count("\\rangle")  # a lone one belongs to a state, \langle 0|
    for token in _tokens(text):
        depth += (token in _OPEN) - (token in _CLOSE)
        if angles:
            depth += (token == "\\langle") - (token == "\\rangle")
        if depth == 0 and token in separators:
            found.append(token)
            pieces.append("")
        else:
            pieces[-1] += token
    return [piece.strip() for piece in pieces], found


_WORD_SEPARATORS = re.compile(
    r" ?(?:\\text ?\{ ?,? ?(?:or|and) ?\}|(?<![A-Za-z])(?:or|and)(?![A-Za-z])|\\(?:lor|vee|land|wedge)(?![A-Za-z])) ?"
)


_MAY_LIST = re.compile(r"[,;]|\\(?:cup|pm|mp|text|lor|vee|land|wedge|\{)|or|and")
_ANY_OPERATOR = re.compile(r"[=<>]|\\(?:le|ge|ne|in|approx)(?![A-Za-z])")


def listing(text: str) -> Listing | None:
    """Return the items of a tuple, interval, set, union or bare list; None for anything else. A ``\\pm`` counts as its two values."""
    if not _MAY_LIST.search(text):
        return None
    tokens = _tokens(text)
    if len(tokens) > 1 and tokens[0] in _OPEN and _encloses(tokens):
        inner = text[len(tokens[0]) : -len(tokens[-1])]
        if tokens[0] == "{" and quantity(inner) is not None:
            return None
        items, _ = split_outside(inner, (",", ";"))
        if len(items) > 1 or tokens[0] == "\\{":
            return Listing(_brackets(tokens), tuple(expanded for item in items for expanded in _both_signs(item)))
    if (vector := _VECTOR.fullmatch(text)) and len(items := split_outside(vector[1], (",", ";"))[0]) > 1:
        return Listing("<>", tuple(items))
    return _bare(text)


_VECTOR = re.compile(r"\\langle(?![A-Za-z]) ?((?:(?!\\[lr]angle).)*)\\rangle", re.DOTALL)


def _encloses(tokens: Sequence[str]) -> bool:
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0:
            return place == len(tokens) - 1
    return False


def _brackets(tokens: Sequence[str]) -> str:
    return "{}" if tokens[0] == "\\{" else "" if tokens[0] == "{" else tokens[0] + tokens[-1]  # a bare brace only groups


def _bare(text: str) -> Listing | None:
    if "\\cup" in text and len(union := split_outside(text, ("\\cup",))[0]) > 1:
        return Listing("U", tuple(union))
    pieces = _WORD_SEPARATORS.sub(";", text) if " " in text or "\\" in text or "or" in text or "and" in text else text
    if pieces != text and not _ORDER_SIGN.search(text) and _CONNECTIVE.search(text):
        return None  # p \land q: a proposition, not two answers
    groups, _ = split_outside(pieces, (";",))
    items = []
    for group in groups:
        items += [group] if quantity(group) is not None else split_outside(group, (",",))[0]
    items = [expanded for item in items if item for expanded in _both_signs(item)]
    return Listing("", tuple(items)) if len(items) > 1 else None


_EITHER_SIGN = re.compile(r"\s*\\(pm|mp)(?![A-Za-z])\s*")


def _both_signs(item: str) -> list[str]:
    signs = _EITHER_SIGN.findall(item)
    if len(signs) != 1:
        return [item]
    return [_EITHER_SIGN.sub(sign, item) for sign in ("+-" if signs == ["pm"] else "-+")]


def relation(text: str) -> Relation | None:
    """Return the parts of an equation, inequality or membership; None if there is no such sign outside brackets."""
    if not _ANY_OPERATOR.search(text):
        return None
    parts, found = split_outside(text, (*_OPERATORS, "<=", ">="))
    if not found or not all(parts):
        return None
    return Relation(tuple(parts), tuple(_OPERATORS.get(sign, sign) for sign in found))


_CONNECTIVE = re.compile(r"\\(?:lor|vee|land|wedge)(?![A-Za-z])")
_LEADING = re.compile(r"(<=|>=|[<>]|\\(?:le|ge|ne|in)(?![A-Za-z])) ?(.*)", re.DOTALL)
_SUBSCRIPT = re.compile(r"_ ?\{[^{}]*\}")
_ORDER_SIGN = re.compile(r"<=|>=|[<>=]|\\(?:le|ge|ne)(?![A-Za-z])")


def leading_sign(text: str) -> tuple[str, str]:
    r"""Return (sign, the rest) of ``\ne 3``, which says which value it is not; ("", the text) for anything else, also for ``=3``."""
    match = _LEADING.fullmatch(text)
    return (_OPERATORS.get(match[1], match[1]), match[2]) if match else ("", text)


def nested_signs(text: str) -> list[str]:
    """Return the signs of equality and order at any depth, sorted; signs under a sum or a limit say nothing about the value. ``>`` counts
    as ``<``, since algebra decides the direction."""
    signs = (_OPERATORS.get(sign, sign) for sign in _ORDER_SIGN.findall(_SUBSCRIPT.sub(" ", text)))
    return sorted({">": "<", ">=": "<="}.get(sign, sign) for sign in signs)


_MEASURED = r"(?:[A-Z]{2}|[A-Z]_ ?(?:\{[^{}]*\}|[0-9A-Za-z])|\\(?:text|overline) ?\{ ?[A-Z]{2} ?\})"
"""A segment, or one of several volumes."""
_NAMED = rf"(?:{_MEASURED}|[A-Za-z])"
_LABEL = re.compile(
    r"(?:\\text ?\{[^{}]*[A-Za-z][^{}]*\}|\\[A-Za-z]+|[A-Za-z]{1,12})(?: ?_ ?(?:\{[^{}]*\}|[0-9A-Za-z]))?'*(?: ?\([A-Za-z0-9, ]{1,12}\))?"
    r"|\\(?:vec|overrightarrow|hat) ?\{ ?[A-Za-z]{1,2} ?\}"
    r"|\\frac ?\{ ?d ?[a-z] ?\} ?\{ ?d ?[a-z] ?\}"
    rf"|\\frac ?\{{ ?{_MEASURED} ?\}} ?\{{ ?{_MEASURED} ?\}}|{_MEASURED}(?: ?[:/] ?{_MEASURED})+|{_NAMED}(?: ?: ?{_NAMED})+"
    r"|(?:\||\\lvert) ?(?:[A-Z]{2}|\\(?:vec|overrightarrow) ?\{[A-Za-z]{1,2}\}) ?(?:\||\\rvert)"
    r"|\\(?:sin|cos|tan|cot) ?(?:\\angle ?)?\(? ?(?:[A-Z]{1,3}|\\(?:alpha|beta|gamma|theta|phi)) ?\)?"
    r"|(?:\\angle|\\triangle|\\overline|\\text ?\{[^{}]*\}) ?\{?[A-Z]{1,4}\}?|[A-Za-z ]{2,40}"
)
_TUPLE_LABEL = re.compile(r"\([a-z](?: ?, ?[a-z]){1,5}\)")
_TAKES_BACK_TEXT = (
    "not isnt no never nor neither wrong false incorrect except without un non or but than nothing other "
    "approx approximately about around roughly nearly almost maybe perhaps probably possibly either unless cannot cant doesnt dont "
    "instead opposite minus plus if zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half twice "
)
_TAKES_BACK = frozenset(_TAKES_BACK_TEXT.split())
_SEGMENT = re.compile(r"(?<![A-Za-z])[A-Z]{2}(?![A-Za-z])")  # NO is not a word
_WORDED = re.compile(r"\\text ?\{([^{}]*)\}")
_AT_BOUND = re.compile(r"(?<![a-z])at (?:least|most)(?![a-z])|^one$")
_NOT_LABELS = ("\\pi", "\\infty", "\\emptyset")
VARIABLE = re.compile(r"[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|omega|epsilon)")
_RANGING = re.compile(rf"{VARIABLE.pattern}|[A-Za-z] ?\([A-Za-z]\)")
_ABSOLUTE = re.compile(rf"(?:\||\\lvert) ?({VARIABLE.pattern}) ?(?:\||\\rvert)")
_SHIFTED = re.compile(rf"(?:\||\\lvert) ?({VARIABLE.pattern}) ?([+-]) ?([^|]{{1,40}}?) ?(?:\||\\rvert)")
_MIRRORED = {"(": ")", "[": "]"}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def is_label(text: str) -> bool:
    r"""Return whether the text may name a value: ``x``, ``a_1``, ``f(x)``, ``\text{area}``; never for a number or a constant."""
    if _TUPLE_LABEL.fullmatch(text):
        names = re.findall("[a-z]", text)
        return names == sorted(set(names))  # (y,x)=(1,2) is not (1,2)
    plain = _SEGMENT.sub(" ", _WORDED.sub(r"\1", text).replace("'", "")).strip().lower()
    if any(re.search("[0-9]", worded) for worded in _WORDED.findall(text)) or _AT_BOUND.search(plain):
        return False  # \text{6 or}=5 is not a name for 5
    return bool(_LABEL.fullmatch(text)) and text not in _NOT_LABELS and not _TAKES_BACK.intersection(re.findall("[a-z]+", plain))


_BRACED = re.compile(r"_ ?\{ ?([0-9A-Za-z]) ?\}")
_FUNCTION_VALUE = re.compile(r"[fghFGH]\([a-z]\)")


def same_label(gold: str, answer: str) -> bool:
    """Return whether two labels name the same value: ``x_{1}`` is ``x_1``, and ``y`` is the value of a function ``f(x)``."""
    one, other = (_BRACED.sub(r"_\1", label).replace(" ", "") for label in (gold, answer))
    if one == other:
        return True
    return (one == "y" and bool(_FUNCTION_VALUE.fullmatch(other))) or (other == "y" and bool(_FUNCTION_VALUE.fullmatch(one)))


def assignments(found: Listing | None) -> tuple[tuple[str, ...], ...]:
    """Return ``p=5, q=2, p=7, q=2`` as its solutions, ``p=5, q=2`` and ``p=7, q=2``; () for anything else."""
    if found is None or found.brackets or len(found.items) < 4:
        return ()
    sides = [relation(item) for item in found.items]
    names = [side.parts[0] for side in sides if side and side.operators == ("=",) and is_label(side.parts[0])]
    size = names.index(names[0], 1) if names and names[0] in names[1:] else 0
    if size < 2 or len(names) != len(sides) or names != names[:size] * (len(names) // size) or len(set(names)) != size:
        return ()
    return tuple(found.items[start : start + size] for start in range(0, len(names), size))


def point(text: str) -> Listing | None:
    """Return ``(x,y)=(1,2)`` as the values of its unknowns, ``x=1, y=2``; None for anything else."""
    found = relation(text)
    if found is None or found.operators != ("=",) or not _TUPLE_LABEL.fullmatch(found.parts[0]):
        return None
    names, values = listing(found.parts[0]), listing(found.parts[1])
    if names is None or values is None or values.brackets != "()" or len(names.items) != len(values.items):
        return None
    return Listing("", tuple(f"{name}={value}" for name, value in zip(names.items, values.items, strict=True)))


def label_first(found: Relation | None) -> Relation | None:
    """Return ``5=x`` as ``x=5``."""
    if found and found.operators == ("=",) and is_label(found.parts[1]) and not is_label(found.parts[0]):
        return Relation(found.parts[::-1], found.operators)
    return found


def as_interval(found: Relation) -> tuple[str, Listing] | None:
    """Return (variable, interval) of an inequality in one variable: ``x<3``, ``0<x\\le 1``; None for any other relation."""
    parts, operators = list(found.parts), list(found.operators)
    if not set(operators) <= set(_FLIPPED) or len(parts) > 3:
        return None
    if operators[0] in (">", ">="):
        parts, operators = parts[::-1], [_FLIPPED[operator] for operator in operators[::-1]]
    if not set(operators) <= {"<", "<="}:
        return None
    if len(parts) == 3 and _RANGING.fullmatch(parts[1]):
        low, variable, high = parts
        return variable, Listing(("[" if operators[0] == "<=" else "(") + ("]" if operators[1] == "<=" else ")"), (low, high))
    if len(parts) == 2 and (around := _ABSOLUTE.fullmatch(parts[0])):
        bracket = "[" if operators[0] == "<=" else "("
        return around[1], Listing(bracket + _MIRRORED[bracket], (f"-({parts[1]})", parts[1]))
    if len(parts) == 2 and (around := _SHIFTED.fullmatch(parts[0])) and around[1] not in around[3]:
        bracket, middle = ("[" if operators[0] == "<=" else "("), f"-({around[2]}{around[3]})"
        return around[1], Listing(bracket + _MIRRORED[bracket], (f"-({parts[1]}){middle}", f"{parts[1]}{middle}"))
    if len(parts) == 2 and VARIABLE.fullmatch(parts[0]):
        return parts[0], Listing("(" + ("]" if operators[0] == "<=" else ")"), ("-\\infty", parts[1]))
    if len(parts) == 2 and VARIABLE.fullmatch(parts[1]):
        return parts[1], Listing(("[" if operators[0] == "<=" else "(") + ")", (parts[0], "\\infty"))
    return None


_BRACKETED = re.compile(r"^(?:\( ?(?=.*\)$)|\[ ?(?=.*\]$))(\\begin ?\{(array|[pb]?matrix)\}.*\\end ?\{\2\}) ?[)\]]$", re.DOTALL)
_MATRIX = re.compile(r"\\begin ?\{([pbB]?matrix|array)\}(?: ?\{[lcr| ]*\})?(.*)\\end ?\{\1\}", re.DOTALL)


def matrix(text: str) -> tuple[tuple[str, ...], ...] | None:
    """Return rows of cells; None if the text is not a single matrix."""
    match = _MATRIX.fullmatch(_BRACKETED.sub(r"\1", text))
    if match is None or "\\begin" in match[2]:
        return None
    rows = [row for row in match[2].split("\\\\") if row.strip()]
    return tuple(tuple(cell.strip() for cell in row.split("&")) for row in rows)


def paired(gold: Sequence[str], answer: Sequence[str], same: Callable[[str, str], bool]) -> bool:
    """Return whether each gold item is the same as an item of the answer, in any order. No item of the answer serves twice.

    >>> paired(["1", "1"], ["1", "2"], str.__eq__), paired(["1", "2"], ["2", "1"], str.__eq__)
    (False, True)
    """
    left = list(answer)
    for item in gold:
        match = next((other for other in left if same(item, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True
