"""Text of the code as Markdown: docstrings, signatures and tables of the pages that the site makes from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["cell", "escape", "prose", "signature", "table"]

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_FIELD = re.compile(r"``[^`]+``(?:(?:,| and)? ``[^`]+``| \([^)]*\))*:(?: |$)")
_MARK = re.compile(r":(param|raises?|returns?)(?: ([^:]+))?:\s*")
_COLUMNS = re.compile(r"\S+(?: \S+)*\s{3,}\S")
_LABELS = {"param": "Arguments", "raises": "Raises", "raise": "Raises"}
_WIDTH = 88
_LONGEST_DEFAULT = 60


def escape(text: str) -> str:
    """Return a line of a docstring with the characters escaped that Markdown would read as marks; code stays as it is."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if number % 2 else re.sub(r"([\\*_<\[\]])", r"\\\1", part) for number, part in enumerate(parts))


def cell(text: str) -> str:
    """Return a text as a cell of a table: one line, in which no bar ends the cell."""
    return escape(text).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown already, or "" if it has no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *lines, "", ""]) if lines else ""


def prose(doc: str | None) -> str:
    """Return a docstring as Markdown. Its fields, arguments and errors become lists; examples and columns become blocks of code."""
    return "\n\n".join(_blocks(inspect.cleandoc(doc or ""))) + "\n\n"


def _blocks(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0].startswith(">>>"):
            yield "```pycon\n" + block + "\n```"
        elif all(line.startswith("    ") for line in lines) or sum(map(bool, map(_COLUMNS.match, lines))) > 1:
            yield "```text\n" + inspect.cleandoc(block) + "\n```"
        else:
            yield "\n".join(_listed(_items(lines)))


def _listed(items: Iterable[str]) -> Iterator[str]:
    """Yield the items as Markdown, with a line above the first argument and the first error."""
    label = ""
    for item in items:
        mark = _MARK.match(item)
        said = _LABELS.get(mark[1], "") if mark else ""
        if said != label:
            yield f"\n{said}:\n" if said else ""
            label = said
        yield _item(item)


def _items(lines: Iterable[str]) -> list[str]:
    """Return the paragraphs, fields and arguments of a block, one line each."""
    found: list[str] = []
    for line in lines:
        begins = not found or _FIELD.match(line) or _MARK.match(line) or line.startswith("- ")
        if begins:
            found.append(line.strip())
        else:
            found[-1] += " " + line.strip()
    return found


def _item(text: str) -> str:
    if mark := _MARK.match(text):
        rest = escape(text[mark.end() :])
        return f"- `{mark[2]}`: {rest}" if mark[2] else f"Returns {rest}"
    if text.startswith("- "):
        return f"- {escape(text[2:])}"
    return f"- {escape(text)}" if _FIELD.match(text) else escape(text)


class _Bare:
    """An annotation that prints as it is written, without quotes."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text.replace("typing.", "")


def signature(name: str, function: Any) -> str:
    """Return ``name(arguments) -> result``, on several lines if one is too long; the name alone if Python knows no signature."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    bare = {item: _Bare(found.parameters[item].annotation) for item in found.parameters}
    empty = inspect.Parameter.empty
    items = [
        str(one if one.annotation is empty else one.replace(annotation=bare[one.name]))
        for one in found.parameters.values()
        if not one.name.startswith("_")
    ]
    items = [_shortened(item) for item in items]
    kinds = [one.kind for one in found.parameters.values() if not one.name.startswith("_")]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        items.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = "" if found.return_annotation in (empty, "None", None) else f" -> {_Bare(found.return_annotation)}"
    line = f"{name}({', '.join(items)}){result}"
    return line if len(line) <= _WIDTH else f"{name}(\n" + "".join(f"    {item},\n" for item in items) + f"){result}"


def _shortened(item: str) -> str:
    """Return an argument whose default reads as a program writes it; one without such a form, or a long one, is an ellipsis."""
    item = re.sub(r"<([A-Z]\w*\.[A-Z_]+): .*?>", r"\1", item)
    item = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", item)
    item = re.sub(r"<factory>|<.* at 0x\w+>", "...", item)
    name, equals, default = item.partition(" = ")
    return f"{name} = ..." if equals and len(default) > _LONGEST_DEFAULT else item
