r"""When is an answer the gold answer? The order of the questions is the point:

1. the same text, white space folded: equal (nothing is equal to an empty text);
2. numbers with white space between on either side: a sequence, item by item, never shown to algebra;
3. the same after normalisation, or decided by what kind of thing it is: words, a number in a base, a time, a list, an interval, a
   relation, a matrix, an exact number with its unit;
4. what is left, a formula, by math-verify;
5. what that cannot parse, as normalised text.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from rlcore_plugin_math import symbolic
from rlcore_plugin_math.guards import LimitExceeded, check_size, foreign_signs, glued_numbers, has_words, is_words, no_formula
from rlcore_plugin_math.normal import compact, fold, foreign_digits, normal, plain_text
from rlcore_plugin_math.quantity import bases_equal, clock, comma_sequence, in_base, quantity, same_quantity, sequence
from rlcore_plugin_math.structure import (
    Listing,
    Relation,
    as_interval,
    balanced,
    is_label,
    leading_sign,
    listing,
    matrix,
    nested_signs,
    relation,
)
from rlcore_plugin_math.units import split_unit

__all__ = ["Equality", "LimitExceeded", "compare", "gold_problem"]


class Equality(Enum):
    """What a comparison found; ``AS_TEXT``: equal, though algebra cannot parse the answer."""

    EQUAL = auto()
    AS_TEXT = auto()
    DIFFERENT = auto()
    UNPARSEABLE = auto()


_MOST_ITEMS = 24  # compared in any order: each pair may cost a call to algebra


def compare(gold: str, answer: str, *, seconds: float) -> Equality:
    """Compare an extracted answer with the gold one.

    :raises LimitExceeded: the answer is beyond the size guards, or takes more than ``seconds``.
    """
    gold, answer = fold(gold), fold(answer)
    if not answer or not gold:
        return Equality.DIFFERENT
    if gold == answer:
        return Equality.EQUAL
    if sequence(gold) is not None and sequence(answer) is not None:
        return _of(sequence(gold) == sequence(answer) != ())
    if foreign_digits(answer.translate(_FULL_WIDTH)):
        return Equality.DIFFERENT
    check_size(answer)
    with symbolic.time_limit(seconds):
        gold, answer = normal(gold), normal(answer)
        as_sequence = _sequences(gold, answer)
        return _of(as_sequence) if as_sequence is not None else _equal(gold, answer)


_FULL_WIDTH = {0xFF10 + digit: str(digit) for digit in range(10)} | {ord(sign): None for sign in "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉"}


def gold_problem(gold: str, *, text_allowed: bool, seconds: float) -> str | None:
    """Why nothing can be compared with this gold answer; None where it can."""
    gold = fold(gold)
    if not gold:
        return "gt_answer is empty"
    spelled = normal(gold)
    plain = sequence(spelled) or quantity(spelled) or is_words(spelled) or clock(spelled) or in_base(spelled) or listing(spelled)
    if plain or text_allowed:
        return None
    try:
        check_size(spelled)
        with symbolic.time_limit(seconds):
            parsed = symbolic.parses(_value(spelled))
    except LimitExceeded as limit:
        return f'gt_answer {gold[:80]!r} is beyond what is compared ({limit}); simplify it, or set unparseable_gold = "text"'
    return None if parsed else f'gt_answer {gold[:80]!r} is no formula; mend it, or set unparseable_gold = "text" to compare it as text'


def _value(text: str) -> str:
    found = relation(text)
    return split_unit(found.parts[-1] if found and is_label(found.parts[0]) else text)[0]


def _of(same: bool) -> Equality:
    return Equality.EQUAL if same else Equality.DIFFERENT


def _sequences(gold: str, answer: str) -> bool | None:
    """None where neither side is a sequence."""
    of_gold, of_answer = sequence(gold), sequence(answer)
    if of_gold is None and of_answer is None:
        return None
    of_gold = comma_sequence(gold) if of_gold is None else of_gold
    of_answer = comma_sequence(answer) if of_answer is None else of_answer
    return bool(of_gold) and of_gold == of_answer


# --- by kind -----------------------------------------------------------------------------------------------------------


def _equal(gold: str, answer: str) -> Equality:
    """Both normalised, not both sequences."""
    if not answer or not gold:
        return Equality.DIFFERENT
    if compact(gold) == compact(answer):
        return Equality.EQUAL
    if not balanced(answer) or "$" in answer.replace("\\$", ""):
        return _as_text(gold, answer)
    for decide in (_by_literal, _by_words):
        if (same := decide(gold, answer)) is not None:
            return _of(same)
    if foreign_signs(answer) or foreign_signs(gold):
        return _as_text(gold, answer)
    for decide in (_by_relation, _by_listing, _by_matrix, _by_quantity):
        if (same := decide(gold, answer)) is not None:
            return _of(same)
    return _by_algebra(gold, answer)


def _same(gold: str, answer: str) -> bool:
    return _equal(gold, answer) in (Equality.EQUAL, Equality.AS_TEXT)


def _by_literal(gold: str, answer: str) -> bool | None:
    """Bases, times and infinities equal only their like."""
    for kind, alike in ((in_base, bases_equal), (clock, lambda one, other: one == other)):
        of_gold, of_answer = kind(gold), kind(answer)
        if of_gold is not None or of_answer is not None:
            return of_gold is not None and of_answer is not None and bool(alike(of_gold, of_answer))
    infinite = re.compile(r"\+?(-?) ?\\infty")
    of_gold, of_answer = infinite.fullmatch(gold), infinite.fullmatch(answer)
    if of_gold or of_answer:
        return bool(of_gold and of_answer and of_gold[1] == of_answer[1])
    return None


_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.)]?")


def _by_words(gold: str, answer: str) -> bool | None:
    of_gold, of_answer = (_CHOICE.fullmatch(plain_text(side)) for side in (gold, answer))
    if of_gold and of_answer and ("(" in gold + answer or "\\text" in gold + answer):
        return of_gold[1] == of_answer[1]
    if is_words(gold) or is_words(answer):
        return plain_text(gold) == plain_text(answer)
    return None


# --- relations ---------------------------------------------------------------------------------------------------------


def _by_relation(gold: str, answer: str) -> bool | None:
    if _several(gold) or _several(answer):
        return None  # a list of relations: its items come back here one by one
    (gold_sign, gold_rest), (answer_sign, answer_rest) = leading_sign(gold), leading_sign(answer)
    if gold_sign or answer_sign:
        return gold_sign == answer_sign and _same(gold_rest, answer_rest)
    of_gold, of_answer = relation(gold), relation(answer)
    if of_gold is None and of_answer is None:
        return None
    gold_interval, answer_interval = (as_interval(side) if side else None for side in (of_gold, of_answer))
    if gold_interval or answer_interval:
        return _intervals(gold, answer, gold_interval, answer_interval)
    if of_gold and of_answer:
        return _two_relations(gold, answer, of_gold, of_answer)
    if of_answer:
        return _names_or_chain(of_answer) is not None and all(_same(gold, part) for part in _names_or_chain(of_answer) or ())
    assert of_gold is not None
    named = of_gold.operators[0] in ("=", "in") and len(of_gold.parts) == 2 and is_label(of_gold.parts[0])
    return named and _same(of_gold.parts[1], answer)


def _several(text: str) -> bool:
    found = listing(text)
    return found is not None and found.brackets in ("", "U")


def _names_or_chain(found: Relation) -> tuple[str, ...] | None:
    """What an equation says the value is: ``x=3`` -> 3, ``1+1=2`` -> both sides, which must then both be right."""
    if not set(found.operators) <= {"=", "in"}:
        return None
    return found.parts[1:] if is_label(found.parts[0]) else found.parts


def _two_relations(gold: str, answer: str, of_gold: Relation, of_answer: Relation) -> bool | None:
    if is_label(of_gold.parts[0]) and is_label(of_answer.parts[0]) and of_gold.operators[0] in ("=", "in"):
        if of_answer.operators[0] != of_gold.operators[0] or compact(of_gold.parts[0]) != compact(of_answer.parts[0]):
            return False
        return all(_same(of_gold.parts[-1], part) for part in of_answer.parts[1:])
    if of_gold.operators != of_answer.operators or not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", answer)):
        return False
    return None


def _intervals(gold: str, answer: str, of_gold: tuple[str, Listing] | None, of_answer: tuple[str, Listing] | None) -> bool | None:
    if of_gold and of_answer:
        return of_gold[0] == of_answer[0] and _listings(of_gold[1], of_answer[1])
    inequality, other = (of_gold or of_answer), (answer if of_gold else gold)
    assert inequality is not None
    found = listing(re.sub(r"^[A-Za-z] ?\\in ", "", other))
    if found is None or len(found.brackets) != 2 or found.brackets == "{}":
        return False if relation(other) is None else None
    return _listings(found, inequality[1])


# --- lists, matrices, numbers ------------------------------------------------------------------------------------------


def _by_listing(gold: str, answer: str) -> bool | None:
    of_gold, of_answer = listing(gold), listing(answer)
    if of_gold is None and of_answer is None:
        return None
    if of_gold is not None and of_answer is not None and of_gold.brackets == of_answer.brackets == "U":
        return _any_order(of_gold.items, of_answer.items)
    one = of_gold or of_answer
    assert one is not None
    if (of_gold is None or of_answer is None) and "U" in one.brackets and (of_gold or of_answer) is not None:
        return None  # a union against a formula that may simplify to one
    if of_gold is None and len(one.items) == len(split := gold.split(",")) and quantity(gold) is not None and one.brackets == "()":
        of_gold = Listing("", tuple(split))
    return _listings(of_gold or Listing("", (gold,)), of_answer or Listing("", (answer,)))


def _listings(gold: Listing, answer: Listing) -> bool:
    if len(gold.items) != len(answer.items):
        return False
    kinds = {gold.brackets, answer.brackets}
    if kinds == {""} and _labels_differ(gold) != _labels_differ(answer):
        kinds = {"()"}
    if kinds <= {"", "{}"} or kinds <= {"", "U"}:
        return _any_order(gold.items, answer.items)
    if gold.brackets != answer.brackets and kinds != {"", "()"}:
        return False
    return all(_same(one, other) for one, other in zip(gold.items, answer.items, strict=True))


def _labels_differ(found: Listing) -> bool:
    """``x=1, y=2``: the values of different unknowns, whose order means something once the names are gone."""
    labels = [side.parts[0] for item in found.items if (side := relation(item)) and is_label(side.parts[0])]
    return len(labels) == len(found.items) and len(set(labels)) > 1


def _any_order(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    if len(gold) != len(answer):
        return False
    if len(gold) > _MOST_ITEMS:
        return all(_same(one, other) for one, other in zip(gold, answer, strict=True))
    left = list(answer)
    for item in gold:
        match = next((other for other in left if _same(item, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _by_matrix(gold: str, answer: str) -> bool | None:
    of_gold, of_answer = matrix(gold), matrix(answer)
    if of_gold is None and of_answer is None:
        return None
    if of_gold is None or of_answer is None:
        return None if "matrix" in gold and "matrix" in answer else False
    if [len(row) for row in of_gold] != [len(row) for row in of_answer]:
        return False
    return all(_same(g, a) for gold_row, row in zip(of_gold, of_answer, strict=True) for g, a in zip(gold_row, row, strict=True))


def _by_quantity(gold: str, answer: str) -> bool | None:
    of_gold, of_answer = quantity(gold), quantity(answer)
    if of_gold is not None and of_answer is not None:
        return same_quantity(of_gold, of_answer)
    (gold_body, gold_unit), (answer_body, answer_unit) = split_unit(gold), split_unit(answer)
    if "%" in (gold_unit, answer_unit) or "degree" in (gold_unit, answer_unit) or not (gold_unit or answer_unit):
        return None
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return False
    return _same(gold_body, answer_body)


# --- formulas ----------------------------------------------------------------------------------------------------------


def _by_algebra(gold: str, answer: str) -> Equality:
    if has_words(gold) or has_words(answer) or glued_numbers(answer) or glued_numbers(gold):
        return _of(plain_text(gold) == plain_text(answer))
    if no_formula(answer) or no_formula(gold):
        return _as_text(gold, answer)
    if nested_signs(gold) != nested_signs(answer):
        return Equality.DIFFERENT  # math-verify reads (\ne 3) as 3
    try:
        check_size(gold)
    except LimitExceeded:
        return _as_text(gold, answer)  # not the answer's fault
    same = symbolic.equal(gold, answer)
    return _as_text(gold, answer) if same is None else _of(same)


def _as_text(gold: str, answer: str) -> Equality:
    return Equality.AS_TEXT if plain_text(gold) == plain_text(answer) else Equality.UNPARSEABLE
