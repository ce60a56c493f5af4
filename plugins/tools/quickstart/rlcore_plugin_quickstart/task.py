"""The quickstart's task: sort a few digits. It uses no files, models or tokenizers.

A problem is a sequence of 4 to 6 different digits; its answer is the same digits in ascending order. Problems are split by their set of
digits: if one order of a set is held out, no order of it is trained on. Held-out accuracy therefore measures sorting and not memory. Digits
do not repeat: with repetitions a model of this size would learn too slowly for a demonstration.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any, Generic, TypeVar

__all__ = ["LENGTHS", "Problem", "Split", "make_split"]

LENGTHS = (4, 5, 6)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Problem:
    """Digits to sort, in the order shown.

    >>> Problem((8, 3, 1, 6)).question, Problem((8, 3, 1, 6)).answer
    ('sort 8 3 1 6', '1 3 6 8')
    """

    digits: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """The digits in ascending order, which all orders of one problem share."""
        return tuple(sorted(self.digits))

    @property
    def question(self) -> str:
        """The text of the user's message."""
        return "sort " + " ".join(map(str, self.digits))

    @property
    def answer(self) -> str:
        """The gold answer, without its box."""
        return " ".join(map(str, self.members))

    @property
    def response(self) -> str:
        r"""A right response: the answer in ``\boxed{}``."""
        return rf"\boxed{{{self.answer}}}"

    @property
    def solution(self) -> list[dict[str, Any]]:
        """A right chat, which the warm start shows to the model."""
        return [{"role": "user", "content": self.question}, {"role": "assistant", "content": self.response}]

    lesson = solution

    def row(self) -> dict[str, object]:
        """Return the line of a data file."""
        return {"messages": {"role": "user", "content": self.question}, "gt_answer": self.answer}


@dataclass(frozen=True, slots=True)
class Split(Generic[P]):
    """Problems to train on and held-out problems; no set of digits is in both, and no problem occurs twice."""

    train: tuple[P, ...]
    heldout: tuple[P, ...]


def make_split(seed: int, n_train: int, n_heldout: int) -> Split[Problem]:
    """Draw a split. The lengths 4, 5 and 6 are equally frequent in both parts; held-out sets are all different.

    Raises ``ValueError`` if there are fewer distinct problems than requested.
    """
    rng = random.Random(f"rlcore quickstart {seed}")
    train: list[Problem] = []
    heldout: list[Problem] = []
    for place, length in enumerate(LENGTHS):
        sets = list(combinations(range(10), length))
        rng.shuffle(sets)
        n_out = _share(n_heldout, place)
        heldout += [_shuffled(members, rng) for members in sets[:n_out]]
        train += _distinct_orders(sets[n_out:], _share(n_train, place), rng)
    rng.shuffle(train)
    rng.shuffle(heldout)
    return Split(tuple(train), tuple(heldout))


def _share(total: int, place: int) -> int:
    return total // len(LENGTHS) + (place < total % len(LENGTHS))


def _shuffled(members: Sequence[int], rng: random.Random) -> Problem:
    return Problem(tuple(rng.sample(members, len(members))))


def _distinct_orders(sets: Sequence[tuple[int, ...]], count: int, rng: random.Random) -> list[Problem]:
    """Return ``count`` different problems: one order of each set in turn, then a second order, and so on."""
    exist = sum(factorial(len(members)) for members in sets)
    if count > exist:
        raise ValueError(f"{count} problems requested, but only {exist} are left after holding some out; request fewer")
    found: dict[Problem, None] = {}
    while len(found) < count:
        for members in sets:
            found.setdefault(_shuffled(members, rng))
            if len(found) == count:
                break
    return list(found)
