r"""Bound variables as indices: in ``\sum_{k=1}^n a_k`` the ``k`` of ``a_k`` runs with the sum. Algebra takes ``a_k`` for one constant.

>>> indexed(r"\sum_{k=1}^n a_k"), indexed(r"\sum_{k=1}^n k")
(True, False)
"""

from __future__ import annotations

import re

from rlcore_plugin_math.normal import compact

__all__ = ["indexed", "renamed"]

_OPERATOR = re.compile(r"\\(?:sum|prod|bigcup|bigcap) ?_ ?\{ ?([A-Za-z]) ?(?:=|\\in(?![A-Za-z])|<|\\le(?![A-Za-z])|\})")
_INDEX = re.compile(r"_ ?(?:([A-Za-z])|\{([^{}]*)\})")
_SINGLE = re.compile(r"([_^]) ?\{ ?([A-Za-z0-9@]) ?\}")


def indexed(text: str) -> bool:
    """True where a sum's or product's variable is an index in what is summed."""
    if "\\sum" not in text and "\\prod" not in text and "\\big" not in text:
        return False
    names = set(_OPERATOR.findall(text))
    rest = _OPERATOR.sub(" ", text)
    return any(names & set(re.findall("[A-Za-z]", match[1] or match[2])) for match in _INDEX.finditer(rest))


def renamed(text: str) -> str:
    """The spelling that does not depend on what the bound variables are called."""
    places = {name: f"@{place}" for place, name in enumerate(dict.fromkeys(_OPERATOR.findall(text)))}
    text = re.sub(r"\\[A-Za-z]+|[A-Za-z]", lambda sign: places.get(sign[0], sign[0]), text)
    return compact(_SINGLE.sub(r"\1\2", text))
