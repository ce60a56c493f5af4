r"""Finds the span that is judged. One pass over the text, whatever it holds: no pattern here can be made to backtrack.

>>> last_boxed(r"\boxed{1} or \boxed{\frac{1}{2}}")
'\\frac{1}{2}'
"""

from __future__ import annotations

import re

__all__ = ["last_answer", "last_boxed", "tags_in_order"]

_TOKEN = re.compile(r"\\\\?boxed\s*\{|\\.|[{}]", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def last_boxed(text: str) -> str | None:
    r"""Content of the ``\boxed{…}`` that closes last, braces balanced; None where there is none. Of nested ones the outer."""
    open_braces: list[int] = []
    last: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            open_braces.append(-1)
        elif word.endswith("{") and "boxed" in word:
            open_braces.append(token.end())
        elif word == "}" and open_braces:
            start = open_braces.pop()
            if start >= 0:
                last = (start, token.start())
    return text[last[0] : last[1]] if last else None


def last_answer(text: str) -> str | None:
    """Content of the last ``<answer>…</answer>``; None where there is none."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end] if start >= 0 else None


def tags_in_order(text: str) -> bool:
    """Each of the four tags exactly once, in order, and nothing but white space after the last."""
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    places = [text.index(tag) for tag in _TAGS]
    return places == sorted(places) and not text[places[-1] + len(_TAGS[-1]) :].strip()
