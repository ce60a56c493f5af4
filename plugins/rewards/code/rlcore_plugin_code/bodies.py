r"""Completes a program that is only the body of the function which the prompt begins: models that continue HumanEval's prompts answer so.

Only text that cannot be a program is completed: it does not define the function, and it begins indented, is indented below its first line,
or returns something outside any function. The text is read line by line; nothing is parsed.

>>> print(completed("for x in xs:\n    n += x\nreturn n", "def total(xs, n=0):\n    '''the sum'''\n", "total"), end="")
def total(xs, n=0):
    '''the sum'''
    for x in xs:
        n += x
    return n
"""

from __future__ import annotations

import re

__all__ = ["closed", "completed", "unfenced_body"]

_DEFINED = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_CODE = re.compile(r"^([ \t]*+)([^\s#].*)", re.MULTILINE)
_BLOCK = re.compile(r":[ \t]*(?:#.*)?\r?\n([ \t]+)\S")  # the first line below a colon, and its margin
_GOES_ON = re.compile(r"[:,(\[{\\][ \t\r]*(?:#.*)?$|\"\"\"|'''")  # a line that continues in the next one
_FUNCTION = re.compile(r"(?:async[ \t]+)?def\b|class\b")
_RETURN = re.compile(r"(?:[^#'\"]*:[ \t]*+)?(?:return|yield)\b")
_UNFINISHED = re.compile(r":[ \t]*(?:#[^\n]*)?\s*\Z")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_INDENTED = re.compile(r"(?:[ \t]*+\r?\n)*+(?:[ ]{2}|\t)")
_MARGIN = "    "


def completed(program: str, stub: str, name: str) -> str:
    """Return the stub with the program as the body of its last function, which must be ``name``; the program itself if it is not a body."""
    names = _DEFINED.findall(stub)
    if not names or names[-1] != name or re.search(rf"\b(?:def|class)[ \t]+{name}\b", program):
        return program
    body = _body(program, _margin(stub, name))
    return program if body is None else f"{stub.rstrip()}\n{body}\n"


def closed(stub: str) -> str:
    """Return the stub as Python that can run: a function without documentation gets a body that does nothing."""
    return f"{stub.rstrip()}\n{_MARGIN}pass\n" if _UNFINISHED.search(stub) else stub


def unfenced_body(text: str) -> str | None:
    """Return a response without any fence that is a body from its first line on, None for any other. Prose may be indented too, so the text
    must return something."""
    answer = text.rpartition("</think>")[2]
    if not _INDENTED.match(answer) or _FENCE.search(answer):
        return None
    return answer if any(_RETURN.match(line.group(2)) for line in _CODE.finditer(answer)) else None


def _margin(stub: str, name: str) -> str:
    """Return the white space before lines of the last function of the stub."""
    start = [found.start() for found in _DEFINED.finditer(stub) if found.group(1) == name][-1]
    found = _BLOCK.search(stub, start)
    return found.group(1) if found else _MARGIN


def _body(program: str, margin: str) -> str | None:
    """Return the program with this margin; None if it is not a body. Code after the body, which has no margin, stays unchanged."""
    lines = list(_CODE.finditer(program))
    if not lines:
        return None
    first, end = lines[0], next((line.start() for line in lines[1:] if not line.group(1)), len(program))
    inside = [line.group(1) for line in lines[1:] if line.start() < end]
    own = _first_margin(first, inside, alone=end == len(program))
    if not own:  # all of it is at the left edge
        return _moved(program, "", margin) if _returns(lines) else None
    return _moved(program[: first.start()] + own + program[first.end(1) : end], own, margin) + program[end:]


def _first_margin(first: re.Match[str], inside: list[str], *, alone: bool) -> str:
    """Return the margin that the first line should have; it was lost if the response was stripped. ``inside``: margins of the lines up to
    the next one without any; ``alone``: there is no such line."""
    own = first.group(1)
    usual = min(inside, key=len, default=own)
    goes_on = _GOES_ON.search(first.group())
    if not goes_on:
        return usual
    is_block = goes_on.group().startswith(":")
    return usual if inside and len(inside[0]) > len(usual) and (is_block or alone) else own


def _returns(lines: list[re.Match[str]]) -> bool:
    """Return whether something is returned outside any function, which no program may do."""
    function: int | None = None  # the margin of the function that the line is in
    for line in lines:
        if function is not None and len(line.group(1)) > function:
            continue
        function = len(line.group(1)) if _FUNCTION.match(line.group(2)) else None
        if function is None and _RETURN.match(line.group(2)):
            return True
    return False


def _moved(text: str, before: str, margin: str) -> str:
    """Return the text with another margin; lines without the current margin, as in a long string, stay unchanged."""
    return re.sub(rf"^{re.escape(before)}(?=[^\r\n])", margin, text, flags=re.MULTILINE)
