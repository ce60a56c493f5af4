r"""Capital and small letters are different unknowns, but the parser of formulas does not distinguish them: it takes ``R^2-r^2`` for 0.

>>> told_apart("R^2-r^2", "0")
('z^2-r^2', '0')
>>> told_apart("N", "n")
('N', 'n')
"""

from __future__ import annotations

import re

__all__ = ["divisors_named", "told_apart"]

_GREEK = r"\\(?:Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega)(?![A-Za-z])"
_NO_LETTERS = r"^\(?[A-J]\)|^[A-J][.:](?= )|\\(?:text|mathbb|mathcal|operatorname|begin|end) ?\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]{4,}"
_SENTENCE = re.compile(r"(?<![A-Za-z\\{])(?:or|and|not|no|is|it|the)(?![A-Za-z])", re.IGNORECASE)
_LETTER = re.compile(rf"(?P<greek>{_GREEK})|{_NO_LETTERS}|(?P<letter>[A-Za-z])")
_SPARE = "zwvuyhgkpqtsrmlfbac"
"""Names to assign; not d, e, i, j, n, o and x, which may have a special meaning."""


def told_apart(gold: str, answer: str) -> tuple[str, str]:
    """Return both normalised texts, with other names for capitals if one text has a letter in both sizes. If neither has, a letter may be
    written in either size. Sentences, words of four letters and more, and the letter of an option before its content stay unchanged."""
    both = {capital for text in (gold, answer) for capital in _in_both_sizes(text)}
    if not both or any(_SENTENCE.search(text) for text in (gold, answer)):
        return gold, answer
    used = {sign.lower() for text in (gold, answer) for sign in _letters(text)}
    names = dict(zip(sorted(both), (name for name in _SPARE if name not in used), strict=False))
    return _renamed(gold, names), _renamed(answer, names)


def _letters(text: str) -> list[str]:
    return [match.group() for match in _LETTER.finditer(text) if match["letter"] or match["greek"]]


def _in_both_sizes(text: str) -> set[str]:
    found = set(_letters(text))
    small = {match.group() for match in re.finditer(r"\\[a-z]+", text)} | found
    return {sign for sign in found if sign != sign.lower() and sign.lower() in small}


def _renamed(text: str, names: dict[str, str]) -> str:
    def name(match: re.Match[str]) -> str:
        new = names.get(match.group()) if match["letter"] or match["greek"] else None
        return match.group() if new is None else f" {new} " if match["greek"] else new

    return _LETTER.sub(name, text)


_DIVISORS = re.compile(r"\\(gcd|lcm) ?\(([^()]*[A-Za-z][^()]*)\)")


def divisors_named(*texts: str) -> list[str]:
    r"""Return the texts with an unknown for each ``\gcd`` and ``\lcm`` of unknowns: the parser takes those for polynomials, whose divisor
    is 1.

    >>> divisors_named(r"\gcd(m,n)+1", r"\gcd(n,m)+1", "2")
    [' \\omega_{7001} +1', ' \\omega_{7001} +1', '2']
    """
    numbers: dict[tuple[str, ...], int] = {}

    def name(match: re.Match[str]) -> str:
        key = (match[1], *sorted(part.replace(" ", "") for part in match[2].split(",")))
        return rf" \omega_{{{numbers.setdefault(key, 7001 + len(numbers))}}} "

    return [_DIVISORS.sub(name, text) for text in texts]
