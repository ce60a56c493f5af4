r"""Sets of real numbers: unions of intervals, inequalities joined by words, set builders, points that are left out.

Both answers are reduced to their separate pieces, from left to right, which are then compared end by end.

>>> real_set(r"1<x<3, x\ne 2").pieces == real_set(r"(1,2)\cup(2,3)").pieces
True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from rlcore_plugin_math import symbolic
from rlcore_plugin_math.conjunction import distance
from rlcore_plugin_math.guards import LimitExceeded, check_size
from rlcore_plugin_math.normal import compact
from rlcore_plugin_math.quantity import quantity
from rlcore_plugin_math.structure import VARIABLE, as_interval, listing, relation, split_outside
from rlcore_plugin_math.words import has_words

__all__ = ["Piece", "RealSet", "real_set", "same_set", "unbuilt"]

_NAME = rf"(?:{VARIABLE.pattern})"
_BUILDER = re.compile(
    rf"\\\{{ ?({_NAME}) ?(?:\\in(?![A-Za-z]) ?([^{{}}:|]*(?:\{{[A-Z]\}})?) ?)?"
    r"(?::|\||\\(?:mid|colon|vert)(?![A-Za-z])|\\text ?\{ ?such that ?\}) ?(.*)\\\}",
    re.DOTALL,
)
_SIMPLE_BUILDER = re.compile(r"\\\{ ?([A-Za-z])(?: ?\\in ?\\mathbb\{R\})? ?(?::|\||\\mid) ?([^{}:|]{1,80})\\\}")
_ORDER = re.compile(r"[<>]|\\[lg]e(?![A-Za-z])")
_MEMBER = re.compile(rf"({_NAME}) ?\\in(?![A-Za-z]) ?(.*)", re.DOTALL)
_NO_MEMBER = re.compile(rf"({_NAME}) ?(?:\\notin|\\not ?\\in)(?![A-Za-z]) ?\\\{{(.*)\\\}}", re.DOTALL)
_REALS = re.compile(r"\\mathbb ?\{R\}|R|\\text ?\{ ?R ?\}")
_WITHOUT = re.compile(r"(.*\S) ?(?:\\setminus|\\backslash|(?<=[)\]}R]) ?-) ?(\\\{.*\\\})", re.DOTALL)
_BRACKETED = re.compile(rf"(.*\S) ?\( ?({_NAME} ?\\ne(?![A-Za-z]) ?[^()]*)\)")
_WORD = r"(?:\\text ?\{{ ?,? ?(?:{0}) ?\}}|(?<![A-Za-z\\])(?:{0})(?![A-Za-z]))"
_EXCEPT = re.compile(rf",? ?{_WORD.format('except|excluding')} ?({_NAME} ?)= ?")
_EXCEPT_POINTS = re.compile(rf",? ?{_WORD.format('except|excluding|without')} ?([^<>=,;]+)$")
_OR = re.compile(rf" ?(?:{_WORD.format('or')}|\\(?:lor|vee|cup)(?![A-Za-z])) ?")
_AND = re.compile(rf" ?(?:{_WORD.format('and|but|where|with')}|\\(?:land|wedge)(?![A-Za-z])) ?")
_BEFORE_WORD = re.compile(rf" ?[,;](?= ?{_WORD.format('or|and|but|where|with')})")
_COMPOSED = re.compile(
    r"\\(?:cup|setminus|backslash|ne|notin|not|in|lor|vee|land|wedge|mid)(?![A-Za-z])|or|and|but|exce|\\\{|[<>].*[,;(]|\|"
)
_LONGEST = 300
_MOST_ENDS = 24
_NEAR = Fraction(1, 10**30)


class _Unknown(Exception):
    """The text is not a set of real numbers that this module reads."""


@dataclass(frozen=True, slots=True)
class _End:
    """An end of an interval as it is written. ``value`` is known to many digits; ``exact``: to all."""

    text: str
    value: Fraction | float
    exact: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval, as ``low`` and ``high`` are written; ``brackets`` "[]" with the same end twice is a point."""

    brackets: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class RealSet:
    """``name`` of the unknown, "" if it has none. ``plain``: one interval or inequality as it stands."""

    name: str
    pieces: tuple[Piece, ...]
    plain: bool


_Test = Callable[[Fraction | float, bool], bool]
"""Whether a place is in a set. The place is an end, or, with True, the middle of the gap above it."""


@dataclass(slots=True)
class _Reader:
    ends: list[_End]
    name: str = ""
    plain: bool = True
    points_only: bool = True

    def read(self, text: str) -> _Test:
        """Return the test of a text, whose ends are added to ``ends``."""
        text = text.strip()
        if built := _BUILDER.fullmatch(text):
            return self._built(built[1], (built[2] or "").strip(), built[3].strip())
        if within := _BRACKETED.fullmatch(text):
            text = f"{within[1]}, {within[2]}"
        text = _EXCEPT_POINTS.sub(r" \\setminus\\{\1\\}", text)
        text = _BEFORE_WORD.sub("", _EXCEPT.sub(r", \1 \\ne ", text))
        parts, _ = split_outside(text, (",", ";"))
        if len(parts) > 1:
            return self._conditions(parts)
        joined_or, joined_and = (_pieces(pattern, text) for pattern in (_OR, _AND))
        if len(joined_or) > 1 and len(joined_and) > 1:
            raise _Unknown
        if len(joined_or) > 1:
            self.plain = False
            return _any(self._all(joined_or, points=True))
        if len(joined_and) > 1:
            self.plain = False
            return _every(self._all(joined_and, points=False))
        return self._one(text)

    def _all(self, parts: list[str], *, points: bool) -> list[_Test]:
        return [self._one(part, points=points) for part in parts]

    def _built(self, name: str, domain: str, condition: str) -> _Test:
        if self.name not in ("", name):
            raise _Unknown
        self.name, self.plain = name, False
        test = self.read(condition)
        if not domain or _REALS.fullmatch(domain):
            return test
        return _every([self._one(f"{name}\\in {domain}"), test])

    def _conditions(self, parts: list[str]) -> _Test:
        """Read ``1<x<3, x\\ne 2, 0``. Without an exclusion, a comma may mean "and" or "or"."""
        conditions: list[str] = []
        for part in parts:
            if conditions and "\\ne" in conditions[-1] and not relation(part) and "\\in" not in part:
                conditions.append(f"{conditions[-1].partition(chr(92) + 'ne')[0]}\\ne {part}")
            elif part:
                conditions.append(part)
        self.plain = False
        limits = [part for part in conditions if "\\ne" not in part and not self._real(part)]
        if any(_MEMBER.fullmatch(part) and len(limits) > 1 for part in limits) or len(limits) == len(conditions) > 1:
            raise _Unknown
        tests = [self.read(part) if len(_pieces(_OR, part)) > 1 else self._one(part) for part in limits]
        if len(tests) > 1 and not any(map(_every(tests), *_cells(self.ends))):
            raise _Unknown  # x<1, x>3, x\ne 5: the first comma means "or"
        return _every([*tests, *(self._one(part) for part in conditions if "\\ne" in part)])

    def _real(self, part: str) -> bool:
        member = _MEMBER.fullmatch(part)
        return member is not None and bool(_REALS.fullmatch(member[2].strip())) and self._named(member[1])

    def _named(self, name: str) -> bool:
        if self.name not in ("", name):
            raise _Unknown
        self.name = name
        return True

    def _one(self, text: str, *, points: bool = False) -> _Test:
        text = text.strip()
        if (far := distance(text)) is not None:
            self.plain = False
            return _any(self._all(_pieces(_OR, far), points=False))
        if absent := _NO_MEMBER.fullmatch(text):
            self._named(absent[1])
            self.plain = self.points_only = False
            return _outside(self._points(f"\\{{{absent[2]}\\}}"))
        if member := _MEMBER.fullmatch(text):
            self._named(member[1])
            joined = _pieces(_OR, member[2])
            if len(joined) > 1:
                self.plain = False
            return _any([self._set(part) for part in joined])
        side = relation(text)
        if side is None:
            return self._set(text)
        if side.operators in (("!=",), ("=",)) and VARIABLE.fullmatch(side.parts[0]):
            self._named(side.parts[0])
            if side.operators == ("=",):
                if not points:
                    raise _Unknown
                return self._points(f"\\{{{side.parts[1]}\\}}")
            self.plain = self.points_only = False
            return _outside(self._points(f"\\{{{side.parts[1]}\\}}"))
        if (found := as_interval(side)) is None or not VARIABLE.fullmatch(found[0]):
            raise _Unknown
        self._named(found[0])
        return self._interval(found[1].brackets, found[1].items)

    def _set(self, text: str) -> _Test:
        text = text.strip()
        if (less := _WITHOUT.fullmatch(text)) and less[1].count("(") + less[1].count("[") == less[1].count(")") + less[1].count("]"):
            self.plain = False
            return _every([self._set(less[1]), _outside(self._points(less[2]))])
        if _REALS.fullmatch(text):
            self.points_only = False
            return lambda place, above: True
        if text.startswith("\\{"):
            return self._points(text)
        found = listing(text)
        if found is None or found.brackets not in ("()", "[]", "[)", "(]") or len(found.items) != 2:
            raise _Unknown
        return self._interval(found.brackets, found.items)

    def _interval(self, brackets: str, items: tuple[str, ...]) -> _Test:
        low, high = (self._end(item) for item in items)
        if not low < high or (low == -inf and brackets[0] == "[") or (high == inf and brackets[1] == "]"):
            raise _Unknown
        self.points_only = False

        def test(place: Fraction | float, above: bool) -> bool:
            if above:
                return low <= place < high
            return low < place < high or (place == low and brackets[0] == "[") or (place == high and brackets[1] == "]")

        return test

    def _points(self, text: str) -> _Test:
        found = listing(text)
        if found is None or found.brackets != "{}" or any("infty" in item or not item for item in found.items):
            raise _Unknown
        values = {self._end(item) for item in found.items}
        return lambda place, above: not above and place in values

    def _end(self, text: str) -> Fraction | float:
        """Return the value of an end. Two ends whose values cannot be told apart are one end only if they are the same text."""
        end = _end(text)
        for other in self.ends:
            if other.value == end.value and (other.text == end.text or (other.exact and end.exact)):
                return other.value
            if inf not in (abs(other.value), abs(end.value)) and not (other.exact and end.exact) and _near(other.value, end.value):
                raise _Unknown
        self.ends.append(end)
        if len(self.ends) > _MOST_ENDS:
            raise _Unknown
        return end.value


def _near(one: Fraction | float, other: Fraction | float) -> bool:
    """Return whether two finite values are equal as far as they are known."""
    first, second = Fraction(one), Fraction(other)
    return abs(first - second) <= _NEAR * (abs(first) + abs(second) + 1)


def _end(text: str) -> _End:
    spelled = compact(text)
    if infinite := re.fullmatch(r"\+?(-?)\\infty", spelled):
        return _End(f"{infinite[1]}\\infty", -inf if infinite[1] else inf, exact=True)
    found = quantity(text)
    if found is not None and not found.unit:
        return _End(spelled, found.value, exact=True)
    try:
        check_size(text)
    except LimitExceeded:
        raise _Unknown from None
    value = None if found or has_words(text) else symbolic.value(text)
    if value is None:
        raise _Unknown
    return _End(spelled, value, exact=False)


def _pieces(pattern: re.Pattern[str], text: str) -> list[str]:
    """Split at words that are outside all brackets."""
    parts, _ = split_outside(pattern.sub(" \\\\@ ", text), ("\\@",))
    return parts


def _any(tests: list[_Test]) -> _Test:
    return lambda place, above: any(test(place, above) for test in tests)


def _every(tests: list[_Test]) -> _Test:
    return lambda place, above: all(test(place, above) for test in tests)


def _outside(test: _Test) -> _Test:
    return lambda place, above: not test(place, above)


def _cells(ends: list[_End]) -> tuple[list[Fraction | float], list[bool]]:
    """Return all places that can differ, in order: the gap above minus infinity, then each end and the gap above it."""
    finite = sorted({end.value for end in ends if abs(end.value) != inf})
    places: list[Fraction | float] = [-inf]
    above = [True]
    for value in finite:
        places += [value, value]
        above += [False, True]
    return places, above


def _merged(test: _Test, ends: list[_End]) -> Iterator[Piece]:
    """Yield the separate pieces of a set, from left to right."""
    texts: dict[Fraction | float, str] = {}
    for end in ends:
        texts.setdefault(end.value, end.text)
    texts |= {-inf: "-\\infty", inf: "\\infty"}
    places, above = _cells(ends)
    inside = [test(place, gap) for place, gap in zip(places, above, strict=True)]
    start: tuple[str, Fraction | float] | None = None
    for place, gap, held in zip(places, above, inside, strict=True):
        if held and start is None:
            start = ("(" if gap else "["), place
        elif not held and start is not None:
            # An end that is left out closes the gap below it; a gap that is left out follows its own end, which is inside.
            yield Piece(start[0] + ("]" if gap else ")"), texts[start[1]], texts[place])
            start = None
    if start is not None:
        yield Piece(f"{start[0]})", texts[start[1]], texts[inf])


def real_set(text: str) -> RealSet | None:
    """Return the set of real numbers that a normalised text is; None for anything else, and for a set of single numbers only."""
    if len(text) > _LONGEST or not (_ORDER.search(text) or re.search(r"[(\[,]|\\(?:ne|mathbb|in)(?![A-Za-z])", text)):
        return None
    reader = _Reader([])
    try:
        test = reader.read(text)
        pieces = tuple(_merged(test, reader.ends))
    except _Unknown:
        return None
    if reader.points_only:
        return None
    built = text.startswith("\\{")
    return RealSet("" if built else reader.name, pieces, reader.plain)


def same_set(gold: str, answer: str, same: Callable[[str, str], bool]) -> bool | None:
    """Return whether both texts are the same set; None unless both are sets and one of them has several pieces or conditions. ``same``
    compares two ends."""
    if not (_COMPOSED.search(gold) or _COMPOSED.search(answer)):
        return None
    of_gold = real_set(gold)
    of_answer = real_set(answer) if of_gold else None
    if of_gold is None or of_answer is None or (of_gold.plain and of_answer.plain):
        return None
    if (of_gold.name and of_answer.name and of_gold.name != of_answer.name) or len(of_gold.pieces) != len(of_answer.pieces):
        return False
    pairs = list(zip(of_gold.pieces, of_answer.pieces, strict=True))
    if any(one.brackets != other.brackets for one, other in pairs):
        return False
    return all(same(one.low, other.low) and same(one.high, other.high) for one, other in pairs)


def unbuilt(text: str) -> str:
    """Return the condition of a set builder: the set of all x with ``x>3`` is ``x>3``."""
    builder = _SIMPLE_BUILDER.fullmatch(text)
    return builder[2].strip() if builder and builder[1] in builder[2] and _ORDER.search(builder[2]) else text
