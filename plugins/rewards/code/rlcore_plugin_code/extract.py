r"""Finds the program in a response, reading fences as Markdown does (CommonMark 4.5). One pass, whatever the text holds.

>>> last_program("First ```` ` ````.\n```python\nprint(1)\n```\nIt prints\n```\n1\n```\n")
'print(1)\n'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["fenced", "last_program"]

_LABEL = re.compile(r"[{.]*+(?:python|pypy|py)[0-9.]*+(?:[}:,{].*)?", re.DOTALL)  # python3.11, {python}, {.python}, python:main.py
_THOUGHT = "</think>"
_FENCE = re.compile(r"(?:\A|(?<=[\r\n]))([ \t]*+)(`{3,}+|~{3,}+)([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_TICKS = re.compile(r"`+")
_TAB = 4
_SLACK = 3  # a fence that closes may stand this much deeper than the one that opened


def last_program(text: str) -> str | None:
    """Content of the last closed block labelled as Python, in any case of letters; where there is none, of the last closed block without
    a label; else None. Labels come first because a sample of the output, in a bare block, often follows the program. Where reasoning
    ends with ``</think>``, what follows is read by itself first: a fence left open in the reasoning does not swallow the answer."""
    _, thought, answer = text.rpartition(_THOUGHT)
    found = _last_program(answer) if thought else None
    return found if found is not None else _last_program(text)


def _last_program(text: str) -> str | None:
    labelled: tuple[int, int, int] | None = None
    bare: tuple[int, int, int] | None = None
    for label, *span in _blocks(text):
        if _LABEL.fullmatch(label):
            labelled = (span[0], span[1], span[2])
        elif not label:
            bare = (span[0], span[1], span[2])
    found = labelled or bare
    return _dedented(text, *found) if found else None


def fenced(program: str) -> str:
    """A response that holds just this program, in a fence that nothing in it closes."""
    longest = max((len(run.group()) for run in _TICKS.finditer(program)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{program}\n{fence}\n"


def _blocks(text: str) -> Iterator[tuple[str, int, int, int]]:
    """(label, start, end, characters before its fence) of each closed block, in order; a block that is never closed is none."""
    fence, label, indent, start = "", "", "", 0
    for line in _FENCE.finditer(text):
        margin, mark, rest = line.groups()
        if not fence:
            if mark[0] == "~" or "`" not in rest:
                fence, label, indent, start = mark, _label(rest), margin, line.end()
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip(" \t") and _width(margin) <= _width(indent) + _SLACK:
            yield label, start, line.start(), len(indent)
            fence = ""


def _label(rest: str) -> str:
    words = rest.strip(" \t")[:64].split(maxsplit=1)
    return words[0].lower() if words else ""


def _width(margin: str) -> int:
    return len(margin.expandtabs(_TAB))


def _dedented(text: str, start: int, end: int, indent: int) -> str:
    """The block, less as much white space before each line as stands before its fence."""
    body = text[start:end]
    return re.sub(rf"(?:\A|(?<=[\r\n]))[ \t]{{1,{indent}}}+", "", body) if indent else body
