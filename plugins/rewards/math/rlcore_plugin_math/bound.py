r"""Bound variables as indices: in ``\sum_{k=1}^n a_k`` the ``k`` of ``a_k`` is bound by the sum. Algebra takes ``a_k`` for one constant.

>>> indexed(r"\sum_{k=1}^n a_k"), indexed(r"\sum_{k=1}^n k")
(True, False)
"""

from __future__ import annotations

import re

from rlcore_plugin_math.normal import compact

__all__ = ["indexed", "renamed", "terms"]

_OPERATOR = re.compile(
    r"\\(?:sum|prod|bigcup|bigcap|lim|max|min|sup|inf) ?_ ?\{ ?([A-Za-z]) ?(?:=|<|\}|\\(?:in|le|to|rightarrow|ge)(?![A-Za-z]))"
)
_INDEX = re.compile(r"_ ?(?:([A-Za-z])|\{([^{}]*)\})")
_HEAD = re.compile(r"\\(?:sum|prod) ?_ ?\{[^{}]*\} ?(?:\^ ?(?:\{[^{}]*\}|[A-Za-z0-9]))? ?")
_GROUPS = re.compile(r"\{[^{}]*\}|\([^()]*\)")
_SINGLE = re.compile(r"([_^]) ?\{ ?([A-Za-z0-9@]) ?\}")


def indexed(text: str) -> bool:
    """Return whether the variable of a sum, product or limit occurs as an index within it."""
    names = set(_OPERATOR.findall(text)) if text.count("_") > 1 else set()
    if not names:
        return False
    rest = _OPERATOR.sub(" ", text)
    return any(names & set(re.findall("[A-Za-z]", match[1] or match[2])) for match in _INDEX.finditer(rest))


def terms(text: str) -> tuple[str, str] | None:
    """Return (the operator with its range, the term) of a single sum or product; None if the text has other terms or several operators."""
    head = _HEAD.match(text)
    names = _OPERATOR.findall(text)
    if head is None or len(names) != 1 or re.search(r"[-+]", _GROUPS.sub("", text[head.end() :])):
        return None
    return compact(_SINGLE.sub(r"\1\2", _named(head[0], {names[0]: "k"}))), _named(text[head.end() :], {names[0]: "k"})


def _named(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\\[A-Za-z]+|[A-Za-z]", lambda sign: names.get(sign[0], sign[0]), text)


def renamed(text: str) -> str:
    """Return a spelling that does not depend on the names of the bound variables."""
    places = {name: f"@{place}" for place, name in enumerate(dict.fromkeys(_OPERATOR.findall(text)))}
    return compact(_SINGLE.sub(r"\1\2", _named(text, places)))
