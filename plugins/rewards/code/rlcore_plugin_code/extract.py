r"""Finds the program in a response, reading fences as Markdown does (CommonMark 4.5). One pass, whatever the text holds.

>>> last_program("First ```` ` ````.\n```python\nprint(1)\n```\nIt prints\n```\n1\n```\n")
'print(1)\n'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["fenced", "last_program"]

_LABEL = re.compile(r"[{.]*+(?:python|pypy|py)[0-9.]*+(?:[}:,{].*)?", re.DOTALL)  # python3.11, {python}, {.python}, python:main.py
_THOUGHT = "</think>"
_FENCE = re.compile(r"(?:\A|(?<=[\r\n]))([ \t]*+)(`{3,}+|~{3,}+)([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_TICKS = re.compile(r"`+")
_TAB = 4
_SLACK = 3  # a fence that closes may stand this much deeper than the one that opened


class _Block(NamedTuple):
    """Where the content of a block lies; ``indent``: characters before its fence."""

    label: str
    start: int
    end: int
    indent: int


def last_program(text: str) -> str | None:
    """Content of the last closed block labelled as Python, in any case of letters; where there is none, of the last closed block without
    a label; else None. Labels come first because a sample of the output, in a bare block, often follows the program. Where reasoning
    ends with ``</think>``, what follows is read by itself first: a fence left open in the reasoning does not swallow the answer."""
    blocks = list(_blocks(text))
    reasoning, thought, answer = text.rpartition(_THOUGHT)
    if thought:
        after = list(_blocks(answer))
        if any(block.start <= len(reasoning) < block.end for block in blocks):
            # Either a fence was left open in the reasoning, or a program holds the tag. Then its closing fence opens a block here, but
            # that one has no label.
            after = [block for block in after if _LABEL.fullmatch(block.label)]
        if (found := _last(after)) is not None:
            return _dedented(answer, found)
    return _dedented(text, found) if (found := _last(blocks)) is not None else None


def _last(blocks: list[_Block]) -> _Block | None:
    labelled = [block for block in blocks if _LABEL.fullmatch(block.label)]
    chosen = labelled or [block for block in blocks if not block.label]
    return chosen[-1] if chosen else None


def fenced(program: str) -> str:
    """A response that holds just this program, in a fence that nothing in it closes."""
    longest = max((len(run.group()) for run in _TICKS.finditer(program)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{program}\n{fence}\n"


def _blocks(text: str) -> Iterator[_Block]:
    """Each closed block, in order; a block that is never closed is none."""
    fence, label, indent, start = "", "", "", 0
    for line in _FENCE.finditer(text):
        margin, mark, rest = line.groups()
        if not fence:
            if mark[0] == "~" or "`" not in rest:
                fence, label, indent, start = mark, _label(rest), margin, line.end()
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip(" \t") and _width(margin) <= _width(indent) + _SLACK:
            yield _Block(label, start, line.start(), len(indent))
            fence = ""


def _label(rest: str) -> str:
    words = rest.strip(" \t")[:64].split(maxsplit=1)
    return words[0].lower() if words else ""


def _width(margin: str) -> int:
    return len(margin.expandtabs(_TAB))


def _dedented(text: str, block: _Block) -> str:
    """The block, less as much white space before each line as stands before its fence."""
    body = text[block.start : block.end]
    return re.sub(rf"(?:\A|(?<=[\r\n]))[ \t]{{1,{block.indent}}}+", "", body) if block.indent else body
