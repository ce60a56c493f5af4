r"""Distinguishes words from formulas: algebra would read ``live`` as a product of letters, and find it equal to ``evil``."""

from __future__ import annotations

import re

__all__ = ["has_words", "is_words"]

_COMMAND = re.compile(r"\\[A-Za-z]+")
_ENVIRONMENT = re.compile(r"\\(?:begin|end|mathbb|mathcal|text ?\{ ?(?:mod|sin|cos|tan|log|ln|gcd|lcm|max|min) ?\}) ?(?:\{[A-Za-z]*\})?")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_FUNCTION = re.compile(
    r"(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|ln|lg|exp|sqrt|mod|gcd|lcm|max|min|floor|ceil|frac|pi|abs|det", re.IGNORECASE
)
_VARIABLES = frozenset("xyztuvw")
_TWO_LETTERS_TEXT = (
    "ad ah am an as at ax be by cm co do dr ed eh em ex ft go ha he hi ho hr id if in is it kg km la lb ma me mg mi ml mm "
    "mr ms my na no of oh ok on op or ox oz pa pi pm re sh so st th to um up us vs we yd ye yo "
)
_TWO_LETTERS = frozenset(_TWO_LETTERS_TEXT.split())
"""Words and units; any other two small letters are a product."""
_SHORT = 3
_UNKNOWNS = re.compile(r"[({]?-?[A-Za-z](?: ?[-,] ?-?[A-Za-z])+[)}]?")
_STOP = frozenset(["or", "and", "not", "is", "the", "cm", "mm", "km", "kg"])


def is_words(text: str) -> bool:
    r"""Return whether the whole answer is words (``Evelyn``, ``\text{not possible}``), which algebra would read as products of letters."""
    bare = text.replace("\\text", " ").strip(" .!?'\"")
    letters = re.sub(r"[{}()\s,.'\"!?-]", "", bare)
    if not letters.isalpha():
        return False
    if set(letters) <= _VARIABLES or _UNKNOWNS.fullmatch(text):
        return False
    if len(letters) == 2 and letters == text.replace(" ", "") and letters.islower() and letters not in _TWO_LETTERS:
        return False
    return len(letters) >= 2 or "\\text" in text


def has_words(text: str) -> bool:
    """Return whether there are words in the formula, so that algebra would multiply their letters."""
    text = _ENVIRONMENT.sub(" ", text)
    if "\\text" in text:
        return True
    runs = _LETTERS.findall(_COMMAND.sub(" ", text))
    return any(run.lower() in _STOP or (len(run) > _SHORT and not _FUNCTION.fullmatch(run)) for run in runs)
