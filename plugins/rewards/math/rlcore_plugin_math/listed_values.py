r"""The items of lists as values: their names, their order, what they give to one unknown, the coordinates of a vector.

>>> by_name(Listing("", ("y=3", "x=4"))).items
('x=4', 'y=3')
"""

from __future__ import annotations

import re

from rlcore_plugin_math.congruence import congruence
from rlcore_plugin_math.normal import compact
from rlcore_plugin_math.structure import Listing, is_label, listing, matrix, relation

__all__ = [
    "by_name",
    "each_named",
    "items_of",
    "labels_differ",
    "labels_of",
    "once_each",
    "points",
    "several",
    "system",
    "tuples",
    "values_of",
]
__all__ += ["vectors"]


def several(text: str) -> bool:
    found = listing(text)
    return found is not None and found.brackets in ("", "U")


def labels_differ(found: Listing) -> bool:
    """Return whether values belong to different unknowns (``x=1, y=2``), so that their order matters once the names are gone."""
    return len(set(labels_of(found))) > 1


def labels_of(found: Listing) -> list[str]:
    """Return the name of each item; [] if one has none."""
    labels = [side.parts[0] for item in found.items if (side := relation(item)) and is_label(side.parts[0])]
    return labels if len(labels) == len(found.items) else []


_NAME = re.compile(r"(?:[A-Za-z]|\\(?:alpha|beta))(?:_\{?[0-9]\}?)?")


def by_name(found: Listing) -> Listing:
    """Return ``y=3, x=4`` in the order of the names, which is that of a point: ``x=4, y=3``."""
    labels = [label.replace(" ", "") for label in labels_of(found)]
    if not labels or not all(map(_NAME.fullmatch, labels)):
        return found
    named = sorted(zip(labels, found.items, strict=True), key=lambda pair: pair[0])
    return Listing(found.brackets, tuple(item for _, item in named))


def each_named(found: Listing | None) -> Listing | None:
    """Return ``x=1, 2; y=3`` as ``x=1, x=2, y=3``: a value without a name has that of the value before it."""
    if found is None or found.brackets:
        return found
    sides = [relation(item) for item in found.items]
    names = {side.parts[0] for side in sides if side and side.operators == ("=",) and is_label(side.parts[0])}
    if len(names) < 2 or None not in sides:
        return found
    items, name = [], ""
    for item, side in zip(found.items, sides, strict=True):
        name = side.parts[0] if side else name
        items.append(item if side or name not in names else f"{name}={item}")
    return Listing("", tuple(items))


def items_of(text: str) -> tuple[str, ...]:
    found = listing(text)
    return found.items if found is not None and found.brackets in ("", "()") else (text,)


def once_each(found: Listing) -> Listing:
    """Return a set without repeated items."""
    return Listing(found.brackets, tuple({compact(item): item for item in found.items}.values()))


def system(text: str) -> tuple[str, ...]:
    """Return the congruences of a list of them, () if it has anything else."""
    found = listing(text) if text.count("\\equiv") > 1 else None
    items = found.items if found is not None and not found.brackets else ()
    return items if all(map(congruence, items)) else ()


def values_of(name: str, text: str) -> Listing | None:
    """Return the values that a text gives to an unknown, with or without its name before them; None if it is a pair or an interval."""
    found = listing(text)
    if found is not None and found.brackets not in ("", "{}"):
        return None
    values = []
    for item in found.items if found else (text,):
        side = relation(item)
        if side is None:
            values.append(item)
        elif side.operators == ("=",) and _OF_ONE.sub("", side.parts[0]) == name:
            values.append(side.parts[1])
        else:
            return None
    return Listing(found.brackets if found else "", tuple(values))


_OF_ONE = re.compile(r" ?_ ?(?:[0-9]|\{ ?[0-9] ?\})$")


def tuples(found: Listing) -> bool:
    return all(item.startswith("(") and item.endswith(")") for item in found.items)


def points(solutions: tuple[tuple[str, ...], ...], *, ordered: bool) -> Listing:
    """Return the solutions as points. ``ordered``: by the names of the unknowns, if both sides name them."""
    return Listing("", tuple(f"({','.join(sorted(items) if ordered else items)})" for items in solutions))


def vectors(gold: str, answer: str, of_gold: Listing | None, of_answer: Listing | None) -> tuple[Listing, Listing] | None:
    r"""Return both as tuples if one is a vector in angle brackets, and the other one too, a tuple, or a column of a matrix."""
    sides = []
    if not any(found is not None and found.brackets == "<>" for found in (of_gold, of_answer)):
        return None
    for text, found in ((gold, of_gold), (answer, of_answer)):
        column = matrix(text) if found is None else None
        if column and all(len(row) == 1 for row in column):
            sides.append(Listing("()", tuple(row[0] for row in column)))
        elif found is not None and found.brackets in ("<>", "()", ""):
            sides.append(Listing("()", found.items))
        else:
            return None
    return sides[0], sides[1]
