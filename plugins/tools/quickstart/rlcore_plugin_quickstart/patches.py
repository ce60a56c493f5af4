"""Patches of text files, in the format SEARCH/REPLACE::

    shop.py
    <<<<<<< SEARCH
        return a - b
    =======
        return a + b
    >>>>>>> REPLACE

The lines between SEARCH and ``=======`` are whole lines of the file, which occur in it exactly once; the other lines replace them. Models
write this format more reliably than a diff: it has no line numbers, which they miscount, and it repeats only what changes. Aider and
other coding agents use it.

This module uses only the standard library, because the task ``repair`` of the quickstart also runs its source in a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["DIVIDER", "END", "START", "Edit", "PatchError", "applied", "make_patch", "parsed"]

START, DIVIDER, END = "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE"
_EDIT = re.compile(
    rf"^(?P<path>\S[^\n]*)\n(?:```\w*\n)?{START}(?P<search>(?:[^\n]*\n)*?){DIVIDER}(?P<replace>(?:[^\n]*\n)*?){END}[ \t]*$", re.MULTILINE
)


class Edit(NamedTuple):
    """One block of a patch. ``search``, ``replace``: whole lines, each with its line end."""

    path: str
    search: str
    replace: str


class PatchError(ValueError):
    """The patch cannot be applied. The message tells the author what to change."""


def parsed(answer: str) -> list[Edit]:
    """Return the blocks in an answer; text around them has no effect."""
    return [Edit(found["path"].strip(), found["search"], found["replace"]) for found in _EDIT.finditer(answer)]


def applied(files: Mapping[str, str], answer: str) -> dict[str, str]:
    """Return the files after the patch in an answer.

    :raises PatchError: there is no patch, it names another file, its text to search does not occur exactly once, or it changes nothing.
    """
    edits = parsed(answer)
    if not edits:
        raise PatchError("the answer has no block with SEARCH, ======= and REPLACE below the name of a file")
    after = dict(files)
    for edit in edits:
        if edit.path not in after:
            raise PatchError(f"{edit.path[:100]!r} is not a file of the repository")
        after[edit.path] = _replaced(after[edit.path], edit)
    if after == dict(files):
        raise PatchError("the patch changes nothing")
    return after


def make_patch(path: str, before: str, after: str) -> str:
    """Return the patch that turns ``before`` into ``after``. Both end with a line end, and are not empty; they differ.

    :raises ValueError: a line is a marker of the format, which a patch cannot contain.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    for context in range(len(old) + 1):
        low, high = max(first - context, 0), max(last - context, 0)
        search, replace = old[low : len(old) - high], new[low : len(new) - high]
        if search and _places(old, search) == 1:
            break
    patch = f"{path}\n{START}{''.join(search)}{DIVIDER}{''.join(replace)}{END}"
    if parsed(patch) != [Edit(path, "".join(search), "".join(replace))]:
        raise ValueError(f"{path}: contains a line that is a marker of the patch, so that no patch can have it")
    return patch


def _replaced(text: str, edit: Edit) -> str:
    lines, search = text.splitlines(keepends=True), edit.search.splitlines(keepends=True)
    count = _places(lines, search) if search else 0
    if count != 1:
        raise PatchError(f"{edit.path}: the lines to search occur {count} times in the file, and must occur once")
    place = next(iter(_found(lines, search)))
    return "".join([*lines[:place], edit.replace, *lines[place + len(search) :]])


def _places(lines: list[str], search: list[str]) -> int:
    return sum(1 for _ in _found(lines, search))


def _found(lines: list[str], search: list[str]) -> Iterator[int]:
    return (place for place in range(len(lines) - len(search) + 1) if lines[place : place + len(search)] == search)


def _common(one: list[str], other: list[str]) -> int:
    """Return the number of equal lines at the beginning."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
