"""How far a number may be from the gold one. It is off by default, since a near number is not a right one.

>>> Tolerance(relative=Fraction(1, 1000)).near(Fraction(1000), Fraction(1001), step=Fraction(0))
True
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["EXACT", "Tolerance"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``absolute``: a distance; ``relative``: a share of the gold number; ``stated_digits``: half of the last place that a gold decimal
    states (125.66 stands for every number that rounds to it). The largest of them applies."""

    absolute: Fraction = Fraction(0)
    relative: Fraction = Fraction(0)
    stated_digits: bool = False

    def __bool__(self) -> bool:
        return bool(self.absolute or self.relative or self.stated_digits)

    def near(self, gold: Fraction, answer: Fraction, *, step: Fraction) -> bool:
        """Return whether an answer is near. ``step``: the last place of the gold number as written, 0 for one without a decimal point."""
        stated = step / 2 if self.stated_digits else Fraction(0)
        return abs(gold - answer) <= max(self.absolute, self.relative * abs(gold), stated)


EXACT = Tolerance()
