r"""Free constants of an integral or a differential equation: their letter has no meaning outside the answer.

>>> added(r"\sin x+C"), added(r"a+b+C")
(('\\sin x', 'C'), None)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations

__all__ = ["added", "renamings", "without_declaration"]

_LONGEST = 300
_DECLARED = re.compile(
    r"(?P<body>.*[^ ,;(]) ?[,;]? ?\(? ?(?:\\text ?\{ ?,? ?(?:where|with|and|for)(?: any)? ?\} ?)?"
    r"(?:[A-Zck](?:_ ?(?:[0-9]|\{[0-9]\}))? ?,? ?)+"
    r"(?:\\in(?![A-Za-z]) ?\\mathbb\{R\}|\\text ?\{ ?(?:is|are) (?:an? )?(?:arbitrary )?constants? ?\}) ?\)?",
    re.DOTALL,
)
_SYMBOL = r"(?:[A-Zck](?: ?_ ?(?:[0-9]|\{ ?[0-9] ?\}))?|\\text ?\{ ?(?:const|constant|Const|Constant|C|K) ?\.? ?\}|const)"
_LAST = re.compile(rf"(?P<body>.*[^ +*/^=<>(\[-]) ?\+ ?(?P<symbol>{_SYMBOL})", re.DOTALL)
_FIRST = re.compile(rf"(?P<symbol>{_SYMBOL}) ?(?P<body>[+-].*)", re.DOTALL)
_COMMANDS = re.compile(r"\\(?:text|mathbb|operatorname) ?\{[^{}]*\}|\\[A-Za-z]+")
_LETTERS = re.compile(r"[A-Za-z]")
_UNKNOWN = frozenset("xyztuvwrs")
_NUMBERED = re.compile(r"(?<![A-Za-z\\])C ?_ ?(?:([0-9])|\{ ?([0-9]) ?\})")
_ONE = re.compile(r"(?<![A-Za-z\\])[A-Zck](?: ?_ ?(?:[0-9]|\{ ?[0-9] ?\}))?")
_GROWTH = re.compile(r"(?<![A-Za-z\\])C ?(?:\\cdot ?)?(?:e ?\^|\\exp(?![A-Za-z]))")
_MOST = 3


def without_declaration(text: str) -> str:
    r"""Return the text without what says of its letters that they are constants (``, C\in\mathbb{R}``)."""
    match = _DECLARED.fullmatch(text) if len(text) <= _LONGEST else None
    return match["body"] if match else text


def added(text: str) -> tuple[str, str] | None:
    r"""Return (the rest, the constant) of ``F(x)+C``. The rest has an unknown that may be integrated, and neither capitals nor the letter
    of the constant; otherwise the letter may be a given number."""
    match = (_LAST.fullmatch(text) or _FIRST.fullmatch(text)) if len(text) <= _LONGEST else None
    if match is None or _open_bracket(match["body"]):
        return None
    letters = set(_LETTERS.findall(_COMMANDS.sub(" ", match["body"])))
    name = match["symbol"].strip()
    if not letters & _UNKNOWN or any(letter.isupper() for letter in letters) or (len(name) == 1 and name.lower() in letters):
        return None
    return match["body"].strip().removeprefix("+").strip(), name


def _open_bracket(text: str) -> bool:
    return any(text.count(opening) != text.count(closing) for opening, closing in ("()", "[]", "{}")) or text.count("|") % 2 == 1


def renamings(gold: str, answer: str) -> Iterator[str]:
    r"""Yield the answer with the constants of the gold answer for its own. The gold answer has ``C_1`` and ``C_2``, or ``Ce^{2x}``."""
    wanted = _wanted(gold)
    if not wanted or max(len(gold), len(answer)) > _LONGEST:
        return
    spelled = _spelled(answer)
    found = list(dict.fromkeys(_ONE.findall(_hidden(spelled))))
    if len(found) != len(wanted) or len(_ONE.findall(_hidden(spelled))) != len(found):
        return
    for names in permutations(wanted):
        table = dict(zip(found, names, strict=True))
        yield re.sub(rf"\\[A-Za-z]+|{_ONE.pattern}", lambda sign: table.get(sign[0], sign[0]), spelled)  # noqa: B023 - used at once


def _hidden(text: str) -> str:
    return _COMMANDS.sub(lambda command: " " * len(command[0]), text)


def _spelled(text: str) -> str:
    """Return ``C_{1}`` as ``C_1``."""
    return re.sub(r"([A-Zck]) ?_ ?(?:\{ ?([0-9]) ?\}|([0-9]))", lambda match: f"{match[1]}_{match[2] or match[3]}", text)


def _wanted(gold: str) -> list[str]:
    """Return the constants of the gold answer, each of which occurs once; [] if they may be given numbers."""
    spelled = _hidden(_spelled(gold))
    every = _ONE.findall(spelled)
    letters = set(_LETTERS.findall(spelled))
    if not letters & _UNKNOWN or len(set(every)) != len(every) or len(every) > _MOST:
        return []
    numbered = [f"C_{match[1] or match[2]}" for match in _NUMBERED.finditer(spelled)]
    if numbered and sorted(numbered) == sorted(every):
        return every
    return every if every == ["C"] and _GROWTH.search(gold) else []
