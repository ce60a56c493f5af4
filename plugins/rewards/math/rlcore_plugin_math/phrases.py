r"""Phrases in words that stand for a mathematical sign. Only a whole answer counts; a phrase within a sentence stays words.

>>> meant(r"\text{no solution}")
'\\emptyset '
>>> meant("twenty-one")
'21'
"""

from __future__ import annotations

import re

__all__ = ["meant", "numeral"]

_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_SOLUTION = r"(?:real |possible |such )?(?:solutions?|roots?)(?: exists?)?"
_EVERY = r"(?:the set of )?(?:all|any|every|each)(?: of)?(?: the)?"
_PHRASES = (
    (
        re.compile(rf"(?:there (?:is|are) )?no {_SOLUTION}|(?:the )?empty set|(?:the )?null set|no {_SOLUTION} in (?:the )?reals"),
        r"\emptyset ",
    ),
    (re.compile(rf"(?:[a-z] (?:is|can be) )?{_EVERY} real(?:s| numbers?| values?)?(?: of)?(?: [a-z])?"), r"\mathbb{R}"),
    (re.compile(rf"(?:[a-z] (?:is|can be) )?{_EVERY} integers?(?: [a-z])?"), r"\mathbb{Z}"),
)
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_VALUES = {name: value for value, name in enumerate(_ONES.split())}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES |= {name: 10 * value for value, name in enumerate(_TENS.split(), 2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_LONGEST = 60


def meant(text: str) -> str:
    """Return the sign that a normalised answer gives in words (``all real numbers``, ``twelve``); the unchanged text if it gives none."""
    if not text or len(text) > _LONGEST or not ("\\text" in text or text[0].isalpha()):
        return text
    said = " ".join(_TEXT.sub(r" \1 ", text).replace("$", "").split()).rstrip(".").lower()
    for pattern, sign in _PHRASES:
        if pattern.fullmatch(said):
            return sign
    value = numeral(said)
    return text if value is None else str(value)


def numeral(said: str) -> int | None:
    """Return the whole number that English words spell (``one hundred and five``, ``minus seven``); None for anything else."""
    words = said.replace("-", " ").split()
    sign = -1 if words and words[0] in ("minus", "negative") else 1
    words = words[1:] if sign < 0 else words
    if not words or words[-1] == "and":
        return None
    total = part = 0
    last = 10**12
    for word in words:
        if word == "and" and part % 100 == 0 and (part or total):
            last = min(last, 100)
        elif word == "hundred" and 0 < part < 10:
            part, last = part * 100, 100
        elif word in _SCALES and part:
            total, part, last = total + part * _SCALES[word], 0, 10**12
        elif word in _VALUES and (value := _VALUES[word]) < last and (value or len(words) == 1):
            part, last = part + value, 10 if value >= 20 else 1
        else:
            return None
    return sign * (total + part)
