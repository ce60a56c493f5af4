r"""Digits and signs that are not arithmetic: dates, telephone numbers, scores, codes of letters and digits (``H2O``).

>>> numbered("2020-01-02")
('date', '2020', '1', '2')
>>> lettered(r"\text{H}_2\text{O}")
'H2O'
"""

from __future__ import annotations

import re

from rlcore_plugin_math.quantity import in_base, quantity

__all__ = ["lettered", "numbered"]

_MAY_NUMBER = re.compile(r"[+(]?[0-9][0-9 ().]*[-/.][-0-9/. ]+")
_SPACED = re.compile(r" ?- ?")
_YEAR_FIRST = re.compile(r"([12][0-9]{3})([-/.])(0?[1-9]|1[0-2])\2(0?[1-9]|[12][0-9]|3[01])")
_YEAR_LAST = re.compile(r"([0-9]{1,2})([-/.])([0-9]{1,2})\2([12][0-9]{3})")
_PHONE = re.compile(r"(?:\+?[0-9]{1,3}[- ])?(?:\([0-9]{3}\) ?|[0-9]{3}[- ])[0-9]{3}-[0-9]{4}")
_DASHED = re.compile(r"[0-9]+(?:-[0-9]+)+")
_PADDED = re.compile(r"(?<![0-9])0[0-9]")


def numbered(text: str, *, gold: bool = False) -> tuple[str, ...] | None:
    """Return (kind, groups of digits) of a date, a telephone number, or digits joined by hyphens, one of them padded with 0; None for
    anything else. A gold answer is a result, not an unevaluated difference, so there any digits joined by hyphens are a score, a span or a
    code."""
    if not _MAY_NUMBER.fullmatch(text):
        return None
    text = _SPACED.sub("-", text)
    if date := _YEAR_FIRST.fullmatch(text):
        return ("date", *(group.lstrip("0") for group in (date[1], date[3], date[4])))
    if date := _YEAR_LAST.fullmatch(text):
        return ("date", *(group.lstrip("0") for group in (date[1], date[3], date[4])))
    dashed = _DASHED.fullmatch(text)
    if _PHONE.fullmatch(text) or (dashed and (gold or _PADDED.search(text))):
        return ("code", *re.findall("[0-9]+", text))
    return None


_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_BELOW = re.compile(r"_ ?(?:\{ ?([0-9]+) ?\}|([0-9]))")
_MAY_SPELL = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[A-Za-z0-9_{} \\]+")
_GLUED = re.compile(r"[0-9]*[A-Za-z]+[0-9]+[A-Za-z0-9]*")
_FUNCTION = re.compile(r"(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|sqrt|pi)(?=[0-9])")
_COMPOUND = re.compile(r"[0-9]*(?:[A-Z][a-z]?(?:_[0-9]+)?){2,}")
_ELEMENT = re.compile(r"([A-Z][a-z]?)(?:_([0-9]+))?")
_ELEMENTS_TEXT = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Ag Cd Sn Sb Te I Xe Cs Ba "
    "Pt Au Hg Pb Bi U "
)
_ELEMENTS = frozenset(_ELEMENTS_TEXT.split())


def lettered(text: str) -> str | None:
    """Return the spelling of a code of letters and digits: a letter directly followed by a digit (``A1``), or a chemical formula with
    subscripts (``CO_2``). None for anything else: ``2x``, ``V_1V_2``, ``1e5``."""
    if not _MAY_SPELL.fullmatch(text) or in_base(text) is not None or quantity(text) is not None:
        return None
    bare = _BELOW.sub(lambda below: f"_{below[1] or below[2]}", _TEXT.sub(r"\1", text)).strip()
    if _GLUED.fullmatch(bare) and not _FUNCTION.search(bare):
        return bare
    bare = bare.replace(" ", "")
    if not _COMPOUND.fullmatch(bare):
        return None
    elements = _ELEMENT.findall(bare)
    counts = {count for _, count in elements}
    names = {name for name, _ in elements}
    return bare.replace("_", "") if len(names) > 1 and names <= _ELEMENTS and len(counts) > 1 and "1" not in counts else None
