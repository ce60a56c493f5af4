r"""Families of solutions: ``\frac{\pi}{4}+k\pi`` with any integer ``k``, whose letter has no meaning outside the answer.

>>> family(r"x=\frac{\pi}{4}+n\pi, n\in\mathbb{Z}")
Family(name='x', items=('\\frac{\\pi}{4}+n\\pi',), letter='n', domain='Z')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from rlcore_plugin_math import symbolic
from rlcore_plugin_math.structure import VARIABLE, is_label, listing, paired, relation

__all__ = ["Family", "family", "same_family"]

_LONGEST = 300
_SETS = r"(?P<set>\\mathbb ?\{[A-Z]\}|\\text ?\{ ?[A-Z] ?\}|[A-Z])(?P<less> ?[\^_] ?(?:\{[^{}]*\}|[*+0-9]))?"
_SOME = r"(?:where|for|with|and|any|all|every|each|some|an|arbitrary|is|integers?)"
_INTEGER = r"(?:(?:an |any |arbitrary )?(?:integer|whole number)s?|\u4e3a\u6574\u6570|\u662f\u6574\u6570)"
_DECLARED = re.compile(
    rf"(?P<body>.*[^ ,;(]) ?[,;]? ?\(? ?(?:{_SOME} ){{0,4}}"
    rf"(?:(?<![A-Za-z\\])(?P<letter>[a-z]) ?\\in(?![A-Za-z]) ?{_SETS}"
    rf"|(?<![A-Za-z\\])(?P<named>[a-z]) ?(?:is |are )?{_INTEGER}|{_INTEGER} (?P<last>[a-z])"
    r"|(?<![A-Za-z\\])(?P<listed>[a-z]) ?= ?0 ?, ?\\pm ?1 ?, ?\\pm ?2 ?(?:, ?\\pm ?3 ?)?, ?\\ldots) ?\)?",
    re.DOTALL,
)
_WORDED = re.compile(r"\\text ?\{ ?([^{}]*[a-z\u4e00-\u9fff][^{}]*)\}")
_SET = re.compile(rf"\\\{{ ?(?:(?:{VARIABLE.pattern}) ?(?::|\||\\mid) ?(?=[A-Za-z] ?=))?(.*)\\\}}", re.DOTALL)
_LEFT_OVER = re.compile(rf"(?:[ ,;(]+{_SOME})*[ ,;(]*$")
_SUCH_THAT = re.compile(r" ?(?::|\||\\mid(?![A-Za-z])) ?(?=[a-z] ?\\in)")
_SIGNS = re.compile(r"\\(?:text|mathbb) ?\{[^{}]*\}|\\[A-Za-z]+")
_LETTERS = re.compile(r"[A-Za-z]")
_FREE = r"[klmnj]"
_TURNS = re.compile(
    rf"(?<![A-Za-z\\])({_FREE}) ?(?:\\cdot ?)?(?:\\pi(?![A-Za-z]| ?\^)|(?:180|360|90) ?\^ ?\\circ)"
    rf"|(?:\\pi|(?:180|360|90) ?\^ ?\\circ) ?(?:\\cdot ?)?({_FREE})(?![A-Za-z]| ?\^)"
    rf"|\( ?2 ?({_FREE}) ?[+-] ?1 ?\) ?(?:\\cdot ?)?\\pi(?![A-Za-z])"
)
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?\^ ?\\circ(?! ?[A-Z])")
_PRODUCT = re.compile(r"([0-9}]) ?\((?=-?[0-9a-z])")
_MOST_STEPS = 1000
_NEAR = Fraction(1, 10**25)


@dataclass(frozen=True, slots=True)
class Family:
    """``items``: the solutions, each with the same ``letter``. ``domain`` of the letter as stated: "Z" for all integers, "" for none."""

    name: str
    items: tuple[str, ...]
    letter: str
    domain: str


def family(text: str) -> Family | None:
    """Return the family of solutions that a normalised text is. Without a stated domain, the letter must count turns (``k\\pi``)."""
    if len(text) > _LONGEST:
        return None
    said = _SUCH_THAT.sub(", ", built[1].strip()) if (built := _SET.fullmatch(text)) else text
    spoken = " ".join(_WORDED.sub(r" \1 ", said).split())
    declared = _DECLARED.fullmatch(spoken)
    if declared:
        letter = declared["letter"] or declared["named"] or declared["last"] or declared["listed"]
        body, domain = _LEFT_OVER.sub("", declared["body"]), _domain(declared)
    else:
        turns = {next(filter(None, match.groups())) for match in _TURNS.finditer(said)}
        if len(turns) != 1 or built:
            return None
        body, letter, domain = said, turns.pop(), ""
    return _of(body, letter, domain)


def _domain(declared: re.Match[str]) -> str:
    if declared["set"] is None:
        return "Z"
    return re.sub(r"\\(?:mathbb|text)|[{} ]", "", declared["set"]) + (declared["less"] or "").replace(" ", "")


def _of(body: str, letter: str, domain: str) -> Family | None:
    found = listing(body)
    if found is not None and found.brackets not in ("", "{}"):
        return None
    names: list[str] = []
    items: list[str] = []
    for item in found.items if found else (body,):
        side = relation(item)
        if side is not None:
            if side.operators != ("=",) or not is_label(side.parts[0]) or side.parts[0] == letter:
                return None
            names.append(side.parts[0])
        items.append(side.parts[1] if side else item)
        if set(_LETTERS.findall(_SIGNS.sub(" ", items[-1]))) != {letter} or "\\text" in items[-1]:
            return None
    if len(set(names)) > 1:
        return _system(names, items, letter, domain)
    return Family(names[0] if names else "", tuple(items), letter, domain)


def _system(names: list[str], items: list[str], letter: str, domain: str) -> Family | None:
    """Return values of several unknowns, each named once, in the order of the names: their letter is the same number."""
    if not len(set(names)) == len(names) == len(items):
        return None
    ordered = sorted(zip(names, items, strict=True))
    return Family(",".join(name for name, _ in ordered), tuple(item for _, item in ordered), letter, domain)


def same_family(gold: Family, answer: Family, same: Callable[[str, str], bool]) -> bool:
    """Return whether both are the same numbers. If the letter is said to be any integer, it may count from another place, or backwards."""
    if gold.name and answer.name and gold.name != answer.name:
        return False
    domains = {gold.domain, answer.domain} - {""}
    if len(domains) > 1 or len(gold.items) != len(answer.items) or (domains and domains != {"Z"} and "" in (gold.domain, answer.domain)):
        return False
    left = [_with(item, answer.letter, gold.letter) for item in answer.items]
    if "," in gold.name or "," in answer.name:
        pairs = zip(gold.items, left, strict=True)
        return gold.name == answer.name and all(same(_with(one, gold.letter, gold.letter), other) for one, other in pairs)
    return paired(gold.items, left, lambda one, other: _same_item(one, other, gold.letter, same, shifted=domains == {"Z"}))


def _with(item: str, letter: str, value: str) -> str:
    r"""Return the item with another value of its letter, and degrees as multiples of ``\pi``."""
    turned = _DEGREES.sub(r"(\\frac{\1 \\pi}{180})", item)
    valued = re.sub(rf"\\[A-Za-z]+|{letter}", lambda sign: value if sign[0] == letter else sign[0], turned)
    return _PRODUCT.sub(r"\1 \\cdot (", valued)


def _same_item(gold: str, answer: str, letter: str, same: Callable[[str, str], bool], *, shifted: bool) -> bool:
    gold = _with(gold, letter, letter)
    if same(gold, answer):
        return True
    if not shifted:
        return False
    for sign in ("", "-"):
        start, first, second = (
            symbolic.value(text) for text in (_with(answer, letter, "(0)"), _with(gold, letter, "(0)"), _with(gold, letter, "(1)"))
        )
        if start is None or first is None or second is None or first == second:
            return False
        steps = (start - first) / (second - first)
        if abs(steps) > _MOST_STEPS or abs(steps - round(steps)) > _NEAR:
            return False
        if same(_with(gold, letter, f"({sign}{letter}+{round(steps)})".replace("+-", "-")), answer):
            return True
    return False
