r"""Compares two normalised answers by their kind; all other answers are compared by algebra.

>>> Comparer().compare("[0,1)", "0 \\le x<1")
<Equality.EQUAL: 1>
"""

from __future__ import annotations

import re
from enum import Enum, auto
from fractions import Fraction

from rlcore_plugin_math import symbolic
from rlcore_plugin_math.bound import indexed, renamed, terms
from rlcore_plugin_math.choices import choice
from rlcore_plugin_math.codes import lettered, numbered
from rlcore_plugin_math.congruence import congruence, same_congruence
from rlcore_plugin_math.conjunction import alternatives, connective, distance, excluded, joined_by_or, merged
from rlcore_plugin_math.constants import added, renamings, without_declaration
from rlcore_plugin_math.families import family, same_family
from rlcore_plugin_math.guards import LimitExceeded, check_size, foreign_signs, glued_numbers, no_formula
from rlcore_plugin_math.letters import divisors_named
from rlcore_plugin_math.listed_values import (
    by_name,
    each_named,
    items_of,
    labels_differ,
    labels_of,
    once_each,
    points,
    several,
    system,
    tuples,
    values_of,
    vectors,
)
from rlcore_plugin_math.normal import compact, plain_text
from rlcore_plugin_math.parts import labelled_parts
from rlcore_plugin_math.quantity import bases_equal, clock, in_base, quantity, same_clock, same_groups, same_quantity, unit_missing
from rlcore_plugin_math.realsets import same_set, unbuilt
from rlcore_plugin_math.structure import (
    VARIABLE,
    Listing,
    Relation,
    as_interval,
    assignments,
    balanced,
    is_label,
    label_first,
    leading_sign,
    listing,
    matrix,
    nested_signs,
    paired,
    point,
    relation,
    same_label,
)
from rlcore_plugin_math.tolerance import EXACT, Tolerance
from rlcore_plugin_math.units import conversion, split_unit
from rlcore_plugin_math.words import has_words, is_words

__all__ = ["Comparer", "Equality"]


class Equality(Enum):
    """The result of a comparison; ``AS_TEXT``: equal, though algebra cannot parse the answer."""

    EQUAL = auto()
    AS_TEXT = auto()
    DIFFERENT = auto()
    UNPARSEABLE = auto()


_MEMBER_OF = re.compile(rf"({VARIABLE.pattern}|\([a-z](?: ?, ?[a-z]){{1,3}}\)) ?\\in(?![A-Za-z]) ?(\\\{{.*\\\}})", re.DOTALL)
_MOST_ITEMS = 24  # compared in any order: each pair may cost a call to algebra
_INFINITE = re.compile(r"\+?(-?) ?\\infty")
_WITHIN_INFINITY = re.compile(r"[\^_] ?(?:\{[^{}]*\}|\\infty)|\\to ?[+-]? ?\\infty")


_REAL_LINE = frozenset([r"\mathbb{R}", r"(-\infty,\infty)"])
_REMARK = re.compile(r"(.*[^\s=]) ?\\approx ?(-?[0-9]*\.[0-9]+)", re.DOTALL)
_TEN = re.compile(r"(-?[0-9]+) ?_ ?(?:\{ ?10 ?\})")


def _without_ten(text: str) -> str:
    """Return ``12_{10}`` as 12."""
    match = _TEN.fullmatch(text)
    return match[1] if match else text


def _upwards(operators: tuple[str, ...]) -> tuple[str, ...]:
    """Return the operators of ``a > b`` read as ``b < a``."""
    return tuple({">": "<", ">=": "<="}[sign] for sign in reversed(operators)) if set(operators) <= {">", ">="} else operators


def _names_or_chain(found: Relation) -> tuple[str, ...] | None:
    """Return the values that an equation gives: ``x=3`` -> 3, ``1+1=2`` -> both sides, which must then both be right."""
    if not set(found.operators) <= {"=", "in"}:
        return None
    return found.parts[1:] if is_label(found.parts[0]) else found.parts


def _figures(text: str) -> str:
    """Return ``x_2`` as ``x2``."""
    return re.sub(r"[_{}\s]", "", re.sub(r"\\text ?", "", text))


def _valued(text: str) -> tuple[Fraction | None, Fraction]:
    """Return (the real number that a text is, None if it is not one; the last place of a decimal, else 0)."""
    found = quantity(text)
    return (found.value, found.step) if found else (symbolic.value(text), Fraction(0))


def _in_radians(gold: tuple[str, str], answer: tuple[str, str]) -> tuple[str, str] | None:
    """Return both (body, unit) in radians if one is in degrees and the other is a multiple of pi; otherwise None."""
    of_degrees, of_radians = (gold, answer) if gold[1] == "degree" else (answer, gold)
    if of_radians[1] not in ("", "rad") or "\\pi" not in of_radians[0]:
        return None
    turned = rf"({of_degrees[0]}) \cdot \frac{{\pi}}{{180}}"
    return (turned, of_radians[0]) if gold is of_degrees else (of_radians[0], turned)


def _of(same: bool) -> Equality:
    return Equality.EQUAL if same else Equality.DIFFERENT


class Comparer:
    """Compares with one strictness. ``strict``: units and percent signs must be on both sides or neither, decimals are exact, and an answer
    that algebra cannot parse is not right because of its spelling. ``tolerance``: how far a number may be from the gold one.
    ``unit_omitted``: whether one side may lack the unit; None: only if not ``strict``."""

    def __init__(self, *, strict: bool = False, tolerance: Tolerance = EXACT, unit_omitted: bool | None = None) -> None:
        self.strict = strict
        self.tolerance = tolerance
        self.unit_omitted = not strict if unit_omitted is None else unit_omitted

    def compare(self, gold: str, answer: str) -> Equality:
        """Compare two normalised texts that are not both sequences."""
        if not answer or not gold:
            return Equality.DIFFERENT
        if compact(gold) == compact(answer):
            return Equality.EQUAL
        for decide in (self._by_parts, self._by_choice, self._by_code, self._by_congruence):
            if (same := decide(gold, answer)) is not None:
                return _of(same)
        if not balanced(answer) or "$" in answer.replace("\\$", ""):
            return self._as_text(gold, answer)
        for decide in (self._by_set, self._by_family, self._by_constant):
            if (same := decide(gold, answer)) is not None:
                return _of(same)
        gold, answer = unbuilt(gold), unbuilt(answer)
        for decide in (self._by_literal, self._by_words):
            if (same := decide(gold, answer)) is not None:
                return _of(same)
        if foreign_signs(answer) or foreign_signs(gold):
            return self._as_text(gold, answer)
        for decide in (self._by_connective, self._by_member, self._by_relation, self._by_listing, self._by_matrix, self._by_quantity):
            if (same := decide(gold, answer)) is not None:
                return _of(same)
        return self._by_algebra(gold, answer)

    def _same(self, gold: str, answer: str) -> bool:
        return self.compare(gold, answer) in (Equality.EQUAL, Equality.AS_TEXT)

    def _by_parts(self, gold: str, answer: str) -> bool | None:
        """Compare labelled parts in the order of their labels; without labels, in the order of the gold parts."""
        of_gold, of_answer = labelled_parts(gold), labelled_parts(answer)
        if of_gold is None and of_answer is None:
            return None
        one, other = (of_gold or items_of(gold)), (of_answer or items_of(answer))
        return len(one) == len(other) and all(map(self._same, one, other))

    def _by_choice(self, gold: str, answer: str) -> bool | None:
        of_gold, of_answer = choice(gold), choice(answer)
        if of_gold is None or of_answer is None:
            told = of_gold or of_answer
            if told is None or not told.content:
                return None
            return self._same(*((told.content, answer) if of_gold else (gold, told.content))) or None
        if not (of_gold.marked or of_answer.marked):
            return None
        alike = not (of_gold.content and of_answer.content) or self._same(of_gold.content, of_answer.content)
        return of_gold.letter.upper() == of_answer.letter.upper() and alike

    def _by_code(self, gold: str, answer: str) -> bool | None:
        if relation(gold) or relation(answer):
            return None
        of_gold, of_answer = numbered(gold, gold=True), numbered(answer)
        if of_gold or of_answer:
            return of_gold == (numbered(answer, gold=True) if of_gold else of_answer)
        spelled = lettered(gold), lettered(answer)
        if spelled == (None, None):
            return None
        one, other = (found or _figures(side) for found, side in zip(spelled, (gold, answer), strict=True))
        return one == other

    def _same_formula(self, gold: str, answer: str) -> bool:
        """Compare by algebra alone, without the renaming of letters, which would never end."""
        return compact(gold) == compact(answer) or self._by_algebra(gold, answer) is Equality.EQUAL

    def _by_congruence(self, gold: str, answer: str) -> bool | None:
        r"""Compare ``x\equiv 1\pmod 4`` with a congruence, or with ``1 \bmod 4`` beside one."""
        of_gold, of_answer = congruence(gold), congruence(answer)
        systems = system(gold), system(answer)
        if systems[0] and systems[1] and (of_gold is None or of_answer is None):
            return self._any_order(*systems)
        if of_gold is None or of_answer is None or not (of_gold.certain or of_answer.certain):
            return None
        return same_congruence(of_gold, of_answer, self._same)

    def _by_set(self, gold: str, answer: str) -> bool | None:
        """Compare two sets of real numbers of which one has several pieces or conditions."""
        return same_set(gold, answer, self._same)

    def _by_family(self, gold: str, answer: str) -> bool | None:
        """Accept the same solutions with another letter for the integer; anything else is left to the other steps."""
        of_gold = family(gold)
        of_answer = family(answer) if of_gold else None
        return (of_gold is not None and of_answer is not None and same_family(of_gold, of_answer, self._same_formula)) or None

    def _by_constant(self, gold: str, answer: str) -> bool | None:
        """Accept the same formula with another letter for a free constant; anything else is left to the other steps."""
        gold, answer = without_declaration(gold), without_declaration(answer)
        of_gold = added(gold)
        of_answer = added(answer) if of_gold else None
        if of_gold and of_answer and of_gold[1][0] in "CK\\" and (of_gold[1] != of_answer[1]):
            return self._same(of_gold[0], of_answer[0]) or None
        sides = label_first(relation(gold)), label_first(relation(answer))
        if all(sides) and not same_label(*(side.parts[0] for side in sides if side)):
            return None
        one, other = (
            side.parts[-1] if side and is_label(side.parts[0]) else text for side, text in zip(sides, (gold, answer), strict=True)
        )
        return any(self._same_formula(one, renamed) for renamed in renamings(one, other)) or None

    def _by_literal(self, gold: str, answer: str) -> bool | None:
        """Compare bases, times and infinities, which only equal their own kind, with or without the name of a value before them."""
        gold, answer = _without_ten(gold), _without_ten(answer)
        if {compact(side).replace("+\\infty", "\\infty") for side in (gold, answer)} <= _REAL_LINE or gold == answer:
            return True
        if relation(gold) or relation(answer):
            return None
        based = in_base(gold), in_base(answer)
        if based != (None, None):
            return based[0] is not None and based[1] is not None and bases_equal(based[0], based[1])
        timed = clock(gold), clock(answer)
        if timed != (None, None):
            return timed[0] is not None and timed[1] is not None and same_clock(timed[0], timed[1])
        of_gold, of_answer = _INFINITE.fullmatch(gold), _INFINITE.fullmatch(answer)
        if of_gold or of_answer:
            return bool(of_gold and of_answer and of_gold[1] == of_answer[1])
        return None

    def _by_words(self, gold: str, answer: str) -> bool | None:
        if is_words(gold) or is_words(answer):
            one, other = plain_text(gold), plain_text(answer)
            return one == other or (" or " in one and joined_by_or(one) == joined_by_or(other))
        return None

    def _by_connective(self, gold: str, answer: str) -> bool | None:
        """Compare joined inequalities: with "and" they are one range, with "or" a union, and the two never match."""
        without = excluded(gold), excluded(answer)
        if without[0] and without[1]:
            (name, points), (other, other_points) = without[0], without[1]
            return (name == other or not name or not other) and self._any_order(points, other_points)
        outside = distance(gold), distance(answer)
        if (outside[0] is None) != (outside[1] is None):
            return self._same(outside[0] or gold, outside[1] or answer)
        kinds = connective(gold), connective(answer)
        if "mixed" in kinds:
            return plain_text(gold) == plain_text(answer)
        if "and" not in kinds:
            return None
        if "or" in kinds:
            return False
        chains = [merged(side) if kind == "and" else side for side, kind in zip((gold, answer), kinds, strict=True)]
        if kinds == ("and", "and"):
            return self._same(chains[0], chains[1]) if chains[0] and chains[1] else None
        if several(gold) and several(answer):
            return None  # with commas, which may mean either
        return chains[0] is not None and chains[1] is not None and self._same(chains[0], chains[1])

    # --- relations ----------------------------------------------------------------------------------------------------

    def _by_member(self, gold: str, answer: str) -> bool | None:
        r"""Compare ``x\in\{1,2\}`` with the values that the other side gives to ``x``."""
        of_gold, of_answer = _MEMBER_OF.fullmatch(gold), _MEMBER_OF.fullmatch(answer)
        if (of_gold is None) == (of_answer is None):
            return None
        name, elements = (of_gold or of_answer or [""]).groups()  # type: ignore[union-attr]
        values = values_of(name, answer if of_gold else gold)
        inside = listing(elements)
        if values is None or inside is None or inside.brackets != "{}":
            return None
        return self._listings(*((inside, values) if of_gold else (values, inside)))

    def _by_relation(self, gold: str, answer: str) -> bool | None:
        if several(gold) or several(answer):
            return None  # a list of relations: its items come back here one by one
        if remark := _REMARK.fullmatch(answer):
            return self._same(gold, remark[1]) and self._about(gold, remark[2])
        (gold_sign, gold_rest), (answer_sign, answer_rest) = leading_sign(gold), leading_sign(answer)
        if gold_sign or answer_sign:
            return gold_sign == answer_sign and self._same(gold_rest, answer_rest)
        of_gold, of_answer = (label_first(relation(side)) for side in (gold, answer))
        if of_gold is None and of_answer is None:
            return None
        gold_interval, answer_interval = (as_interval(side) if side else None for side in (of_gold, of_answer))
        if gold_interval or answer_interval:
            return self._intervals(gold, answer, gold_interval, answer_interval)
        if of_gold and of_answer:
            return self._two_relations(gold, answer, of_gold, of_answer)
        if of_answer:
            return _names_or_chain(of_answer) is not None and all(self._same(gold, part) for part in _names_or_chain(of_answer) or ())
        assert of_gold is not None
        named = of_gold.operators[0] in ("=", "in") and len(of_gold.parts) == 2 and is_label(of_gold.parts[0])
        return named and self._same(of_gold.parts[1], answer)

    def _about(self, gold: str, decimal: str) -> bool:
        """Return whether a decimal is the value of the gold answer up to one unit of its last place."""
        found, named = quantity(decimal), label_first(relation(gold))
        value, _ = _valued(named.parts[-1] if named else gold)
        return found is not None and value is not None and abs(found.value - value) <= found.step

    def _two_relations(self, gold: str, answer: str, of_gold: Relation, of_answer: Relation) -> bool | None:
        if is_label(of_gold.parts[0]) and is_label(of_answer.parts[0]) and of_gold.operators[0] in ("=", "in"):
            if of_gold.operators == of_answer.operators == ("=",) and same_label(of_gold.parts[0], of_answer.parts[1]):
                of_answer = Relation(of_answer.parts[::-1], of_answer.operators)
            if of_answer.operators[0] != of_gold.operators[0] or not same_label(of_gold.parts[0], of_answer.parts[0]):
                return False
            if set(of_gold.operators) == set(of_answer.operators) and len(set(of_gold.operators)) == 1:
                return all(self._same(of_gold.parts[-1], part) for part in of_answer.parts[1:])
            return of_gold.operators == of_answer.operators and all(map(self._same, of_gold.parts[1:], of_answer.parts[1:]))
        if _upwards(of_gold.operators) != _upwards(of_answer.operators) or not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", answer)):
            return False
        return None

    def _intervals(self, gold: str, answer: str, of_gold: tuple[str, Listing] | None, of_answer: tuple[str, Listing] | None) -> bool | None:
        if of_gold and of_answer:
            return of_gold[0] == of_answer[0] and self._listings(of_gold[1], of_answer[1])
        inequality, other = (of_gold or of_answer), (answer if of_gold else gold)
        assert inequality is not None
        found = listing(re.sub(r"^[A-Za-z] ?\\in(?![A-Za-z]) ?", "", other))
        if found is None or len(found.brackets) != 2 or found.brackets in ("{}", "<>"):
            return False if relation(other) is None else None
        return self._listings(found, inequality[1])

    # --- lists, matrices, numbers -------------------------------------------------------------------------------------

    def _by_listing(self, gold: str, answer: str) -> bool | None:
        of_gold, of_answer = listing(gold), listing(answer)
        if of_gold and len(labels_of(of_gold)) > 1:
            of_answer = point(answer) or of_answer
        if of_answer and len(labels_of(of_answer)) > 1:
            of_gold = point(gold) or of_gold
        if of_gold is None and of_answer is None:
            return None
        of_gold, of_answer = self._solutions(each_named(of_gold), each_named(of_answer))
        if pair := vectors(gold, answer, of_gold, of_answer):
            of_gold, of_answer = pair
        either = [found is not None and not found.brackets and labels_differ(found) for found in (of_gold, of_answer)]
        if any(either) and alternatives(gold) is not alternatives(answer):
            return False  # x=2 or y=3: not a point
        sides = ((of_gold, answer), (of_answer, gold))
        if any(found is not None and found.brackets == "()" and alternatives(other) for found, other in sides):
            return False  # 1 or 2: neither a point nor an interval
        if of_gold is not None and of_answer is not None and of_gold.brackets == of_answer.brackets == "U":
            return self._any_order(of_gold.items, of_answer.items)
        one = of_gold or of_answer
        assert one is not None
        if (of_gold is None or of_answer is None) and "U" in one.brackets and (of_gold or of_answer) is not None:
            return None  # a union against a formula that may simplify to one
        if of_gold is None and len(one.items) == len(split := gold.split(",")) and quantity(gold) is not None and one.brackets == "()":
            of_gold = Listing("", tuple(split))
        return self._listings(of_gold or Listing("", (gold,)), of_answer or Listing("", (answer,)))

    def _solutions(self, of_gold: Listing | None, of_answer: Listing | None) -> tuple[Listing | None, Listing | None]:
        """Return several solutions of several unknowns (``p=5, q=2, p=7, q=2``) as a list of points."""
        sides = [(found, assignments(found)) for found in (of_gold, of_answer)]
        ordered = all(solved for _, solved in sides)
        one, other = (points(solved, ordered=ordered) if solved else found for found, solved in sides)
        return one, other

    def _listings(self, gold: Listing, answer: Listing) -> bool:
        if gold.brackets == answer.brackets == "{}" or (gold.brackets == answer.brackets == "" and tuples(gold) and tuples(answer)):
            gold, answer = once_each(gold), once_each(answer)
        if len(gold.items) != len(answer.items):
            return False
        if not all(map(same_groups, gold.items, answer.items)):
            return False
        kinds = {gold.brackets, answer.brackets}
        if kinds == {"", "{}"} and "\\emptyset" in gold.items + answer.items:
            return False  # the set that contains the empty set
        if kinds == {""} and labels_differ(gold) != labels_differ(answer):
            kinds = {"()"}
        bare = gold if gold.brackets == "" else answer
        if kinds == {"", "()"} and len(set(labels_of(bare))) == 1:
            return False  # two values of one unknown are not a pair
        if kinds <= {"", "{}"} or kinds <= {"", "U"}:
            return self._any_order(gold.items, answer.items)
        if gold.brackets != answer.brackets and kinds != {"", "()"}:
            return False
        gold = by_name(gold) if answer.brackets else gold  # values without a bracket follow the order in which the gold answer names them
        return all(self._same(one, other) for one, other in zip(gold.items, by_name(answer).items, strict=True))

    def _any_order(self, gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
        if len(gold) != len(answer):
            return False
        if len(gold) > _MOST_ITEMS:
            return all(self._same(one, other) for one, other in zip(gold, answer, strict=True))
        return paired(gold, answer, self._same)

    def _by_matrix(self, gold: str, answer: str) -> bool | None:
        of_gold, of_answer = matrix(gold), matrix(answer)
        if of_gold is None and of_answer is None:
            return None
        if of_gold is None or of_answer is None:
            return None if "matrix" in gold and "matrix" in answer else False
        if [len(row) for row in of_gold] != [len(row) for row in of_answer]:
            return False
        return all(self._same(g, a) for gold_row, row in zip(of_gold, of_answer, strict=True) for g, a in zip(gold_row, row, strict=True))

    def _by_quantity(self, gold: str, answer: str) -> bool | None:
        of_gold, of_answer = quantity(gold), quantity(answer)
        if of_gold is not None and of_answer is not None:
            return same_quantity(of_gold, of_answer, strict=self.strict, tolerance=self.tolerance, unit_omitted=self.unit_omitted)
        (gold_body, gold_unit), (answer_body, answer_unit) = split_unit(gold), split_unit(answer)
        if (
            "degree" in (gold_unit, answer_unit)
            and not self.strict
            and (turned := _in_radians((gold_body, gold_unit), (answer_body, answer_unit)))
        ):
            return self._same(*turned) or None
        if "%" in (gold_unit, answer_unit) or "degree" in (gold_unit, answer_unit) or not (gold_unit or answer_unit):
            return None
        if not answer_unit and len(gold_unit) == 1 and (glued := re.fullmatch(rf"(.*[0-9]) ?{re.escape(gold_unit)}", answer)):
            answer_body, answer_unit = glued[1], gold_unit  # "12m" is 12 m if metres are asked for, else a product
        if unit_missing(gold_unit, answer_unit, accepted=self.unit_omitted):
            return False
        if gold_unit != answer_unit and gold_unit and answer_unit:
            factor = None if self.strict else conversion(answer_unit, gold_unit)
            return factor is not None and self._same(
                gold_body, rf"\frac{{{factor.numerator}}}{{{factor.denominator}}} \cdot ({answer_body})"
            )
        return self._same(gold_body, answer_body)

    # --- formulas -----------------------------------------------------------------------------------------------------

    def _by_algebra(self, gold: str, answer: str) -> Equality:
        if indexed(gold) or indexed(answer):
            return _of(self._indexed(gold, answer))
        if has_words(gold) or has_words(answer) or glued_numbers(answer) or glued_numbers(gold):
            return _of(plain_text(gold) == plain_text(answer))
        if no_formula(answer) or no_formula(gold):
            return self._as_text(gold, answer)
        if gold.count("'") != answer.count("'"):
            return self._as_text(gold, answer)  # feet, minutes, derivatives: algebra drops them
        if "\\infty" in _WITHIN_INFINITY.sub("", answer):
            return Equality.DIFFERENT  # not a number, though algebra takes 1/\infty for 0
        if nested_signs(gold) != nested_signs(answer):
            return Equality.DIFFERENT  # math-verify reads (\ne 3) as 3
        try:
            check_size(gold)
        except LimitExceeded:
            return self._as_text(gold, answer)  # not the answer's fault
        same = symbolic.equal(*divisors_named(gold, answer))
        if not same and self.tolerance and self._near(gold, answer):
            return Equality.EQUAL
        return self._as_text(gold, answer) if same is None else _of(same)

    def _indexed(self, gold: str, answer: str) -> bool:
        """Return whether sums or products over an index have the same bounds, and terms that are equal for every value of it."""
        if renamed(gold) == renamed(answer):
            return True
        one, other = terms(gold), terms(answer)
        return one is not None and other is not None and one[0] == other[0] and self._same(one[1], other[1])

    def _near(self, gold: str, answer: str) -> bool:
        """Return whether two real constants are within the tolerance."""
        (value, step), (other, _) = _valued(gold), _valued(answer)
        return value is not None and other is not None and self.tolerance.near(value, other, step=step)

    def _as_text(self, gold: str, answer: str) -> Equality:
        alike = not self.strict and plain_text(gold) == plain_text(answer)
        return Equality.AS_TEXT if alike else Equality.UNPARSEABLE
