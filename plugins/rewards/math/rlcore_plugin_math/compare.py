r"""Decides whether an answer equals the gold answer. The order of the steps matters:

1. the same text, with white space folded: equal (nothing equals an empty text);
2. numbers separated by white space on either side: a sequence, compared item by item, never by algebra;
3. the same after normalisation, or decided by the kind of answer (``kinds.py``): words, a number in a base, a time, a list, an
   interval, a relation, a matrix, an exact number with its unit;
4. any other answer is a formula, compared by math-verify;
5. a formula that math-verify cannot parse is compared as normalised text.

A gold answer is analysed once per process, not once per comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlcore_plugin_math import symbolic
from rlcore_plugin_math.congruence import congruence
from rlcore_plugin_math.guards import LimitExceeded, check_size
from rlcore_plugin_math.kinds import Comparer, Equality
from rlcore_plugin_math.letters import told_apart
from rlcore_plugin_math.limits import time_limit
from rlcore_plugin_math.normal import compact, fold, foreign_digits, normal
from rlcore_plugin_math.phrases import meant
from rlcore_plugin_math.quantity import clock, comma_sequence, in_base, quantity, sequence
from rlcore_plugin_math.structure import is_label, listing, relation
from rlcore_plugin_math.tolerance import EXACT, Tolerance
from rlcore_plugin_math.units import split_unit
from rlcore_plugin_math.words import is_words

__all__ = ["Equality", "LimitExceeded", "compare", "gold_problem"]

_SPELLED_ALIKE = 1000  # characters
_GOLDS = 4096  # analysed gold answers that each process keeps
_FULL_WIDTH = {0xFF10 + digit: str(digit) for digit in range(10)} | {ord(sign): None for sign in "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉"}


@dataclass(frozen=True, slots=True)
class _Gold:
    """The parts of a gold answer that do not depend on the answer: its folded and normalised text, and the sequences in these."""

    folded: str
    spelled: str
    plain: tuple[Fraction, ...] | None
    sequence: tuple[Fraction, ...] | None


@lru_cache(maxsize=_GOLDS)
def _gold(text: str) -> _Gold:
    folded = fold(text)
    spelled = meant(normal(folded))
    return _Gold(folded=folded, spelled=spelled, plain=sequence(folded), sequence=sequence(spelled))


@lru_cache(maxsize=16)
def _comparer(strict: bool, tolerance: Tolerance, unit_omitted: bool | None) -> Comparer:
    return Comparer(strict=strict, tolerance=tolerance, unit_omitted=unit_omitted)


def compare(
    gold: str, answer: str, *, seconds: float, strict: bool = False, tolerance: Tolerance = EXACT, unit_omitted: bool | None = None
) -> Equality:
    """Compare an extracted answer with the gold one. ``strict``: no unit may be omitted, a percentage is not its fraction, decimals are
    exact, and nothing is equal only as text. ``tolerance``: how far a number may be from the gold one. ``unit_omitted``: whether one side
    may lack the unit; None: only if not ``strict``.

    :raises LimitExceeded: the answer is beyond the size guards, or takes more than ``seconds``.
    """
    answer = fold(answer)
    expected = _gold(gold)
    if not answer or not expected.folded:
        return Equality.DIFFERENT
    if expected.folded == answer:
        return Equality.EQUAL
    if expected.plain is not None and (found := sequence(answer)) is not None:
        return _of(expected.plain == found != ())
    if foreign_digits(answer.translate(_FULL_WIDTH)):
        return Equality.DIFFERENT
    with time_limit(seconds):
        answer = _checked(expected, answer)
        as_sequence = _sequences(expected, answer)
        if as_sequence is not None:
            return _of(as_sequence)
        return _comparer(strict, tolerance, unit_omitted).compare(*told_apart(expected.spelled, answer))


def _checked(gold: _Gold, answer: str) -> str:
    """Return the normalised answer. It is within the size guards, or spelled like the gold answer, so that nothing will be computed."""
    try:
        check_size(answer)
    except LimitExceeded:
        if len(answer) > _SPELLED_ALIKE or not _spelled_alike(gold.spelled, normal(answer)):
            raise
    spelled = meant(normal(answer))
    if spelled != answer:
        try:
            check_size(spelled)  # again: a superscript is an exponent only now
        except LimitExceeded:
            if not _spelled_alike(gold.spelled, spelled):
                raise
    return spelled


def _spelled_alike(gold: str, answer: str) -> bool:
    """Return whether the two are spelled alike, except for the name of the value."""
    return compact(_unnamed(gold)) == compact(_unnamed(answer))


def _unnamed(text: str) -> str:
    found = relation(text) if "=" in text else None
    return found.parts[1] if found and found.operators == ("=",) and is_label(found.parts[0]) else text


def _of(same: bool) -> Equality:
    return Equality.EQUAL if same else Equality.DIFFERENT


def _sequences(gold: _Gold, answer: str) -> bool | None:
    """Return whether the sequences are equal; None if neither side is a sequence."""
    found = sequence(answer)
    if gold.sequence is None and found is None:
        return None
    expected = comma_sequence(gold.spelled) if gold.sequence is None else gold.sequence
    found = comma_sequence(answer) if found is None else found
    return bool(expected) and expected == found


def gold_problem(gold: str, *, text_allowed: bool, seconds: float) -> str | None:
    """Return why nothing can be compared with this gold answer; None if it can be used."""
    folded = fold(gold)
    if not folded:
        return "gt_answer is empty"
    spelled = _gold(gold).spelled
    plain = sequence(spelled) or quantity(spelled) or is_words(spelled) or clock(spelled) or in_base(spelled) or listing(spelled)
    if plain or text_allowed or congruence(spelled):
        return None
    try:
        check_size(spelled)
        with time_limit(seconds):
            parsed = symbolic.parses(_value(spelled))
    except LimitExceeded as limit:
        return f'gt_answer {folded[:80]!r} is beyond the limits of the comparison ({limit}); simplify it, or set unparseable_gold = "text"'
    return None if parsed else f'gt_answer {folded[:80]!r} is not a formula; correct it, or set unparseable_gold = "text"'


def _value(text: str) -> str:
    found = relation(text)
    return split_unit(found.parts[-1] if found and is_label(found.parts[0]) else text)[0]
