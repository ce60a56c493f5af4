r"""Finds the program in a response; it reads fences as Markdown does (CommonMark 4.5). One pass over any text.

>>> last_program("First ```` ` ````.\n```python\nprint(1)\n```\nIt prints\n```\n1\n```\n")
'print(1)\n'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rlcore_plugin_code.languages import LANGUAGES
from rlcore_plugin_code.suite import Program

__all__ = ["fenced", "found_program", "last_program"]

_THOUGHT = "</think>"
_FENCE = re.compile(r"(?:\A|(?<=[\r\n]))([ \t]*+)(`{3,}+|~{3,}+)([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_AT_END = re.compile(r"(?:\A|(?<=[\r\n]))([^\r\n`~'\"#]*[^\r\n`~'\"# \t])(`{3,}+|~{3,}+)[ \t]*(?:\r\n|\r|\n|\Z)")
_READS = re.compile(
    r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0|\bfileinput\b|\bread\s*\(\s*0\s*,|\bcin\b|\bscanf\b|\bgetline\b|\bgetchar\b|\breadline\b|readFileSync"
)
_TICKS = re.compile(r"`+")
_TAB = 4
_SLACK = 3  # a closing fence may be indented this much deeper than the opening one


class _Block(NamedTuple):
    """The range of a block's content. ``indent``: characters before its fence; ``language``: None if its label is not one of the wanted
    languages."""

    language: str | None
    label: str
    start: int
    end: int
    indent: int


def last_program(text: str) -> str | None:
    """Return the Python program of a response as text; see ``found_program``."""
    program = found_program(text, ("python",))
    return program and program.text.decode("utf-8", "surrogatepass")


def found_program(text: str, languages: Sequence[str], *, defines: Sequence[str] = (), reads_input: bool = False) -> Program | None:
    """Return the program of a response, None if there is none. It is the content of a closed block labelled as one of the languages, in any
    case of letters. If there is none, and Python is wanted, it is the content of a block without a label. Labels come first because a
    sample of the output, in a bare block, often follows the program.

    If there are several, the last usable one counts: one that defines one of ``defines``, or, if the tests give input, reads it. An example
    of use after the program does neither. If none is usable, the last one counts. This is decided by the text; nothing is parsed.

    If reasoning ends with ``</think>``, the text after it is read first, separately, so that a fence left open in the reasoning does not
    swallow the answer.
    """
    blocks = _read(text, languages)
    reasoning, thought, answer = text.rpartition(_THOUGHT)
    if thought:
        after = _read(answer, languages)
        if any(block.start <= len(reasoning) < block.end for block in blocks):
            # Either a fence was left open in the reasoning, or a program contains the tag. Then its closing fence opens a block here, but
            # without a label.
            after = [block for block in after if block.language]
        if (found := _chosen(answer, after, languages, defines, reads_input)) is not None:
            return found
    return _chosen(text, blocks, languages, defines, reads_input)


def _chosen(text: str, blocks: list[_Block], languages: Sequence[str], defines: Sequence[str], reads_input: bool) -> Program | None:
    labelled = [block for block in blocks if block.language]
    bare = [block._replace(language="python") for block in blocks if not block.label] if "python" in languages else []
    blocks = labelled or bare
    if not blocks:
        return None
    found = next((block for block in reversed(blocks) if _can(text[block.start : block.end], defines, reads_input)), blocks[-1])
    return Program(found.language or "python", _dedented(text, found).encode("utf-8", "surrogatepass"))


def _can(content: str, defines: Sequence[str], reads_input: bool) -> bool:
    if defines:
        return any(
            re.search(rf"(?m)^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^[ \t]*{name}[ \t]*(?::[^=\n]*)?=(?!=)", content)
            for name in defines
        )
    return not reads_input or _READS.search(content) is not None


def fenced(program: str) -> str:
    """Return a response that contains only this program, in a fence that nothing in it closes."""
    longest = max((len(run.group()) for run in _TICKS.finditer(program)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{program}\n{fence}\n"


def _read(text: str, languages: Sequence[str]) -> list[_Block]:
    """Return the closed blocks. If reading fences as Markdown does leaves one open at the end, the text is read again. Then a fence also
    closes if it is indented too deep or ends a line of code; models write both."""
    for lines in (_FENCE.finditer, _all_fences):
        blocks, left_open = [], False
        for block in _blocks(lines(text), languages, strict=lines is not _all_fences):
            if block is None:
                left_open = True
            else:
                blocks.append(block)
        if not left_open:
            break
    return blocks


def _all_fences(text: str) -> Iterator[re.Match[str]]:
    """Yield fences on their own lines and at ends of lines, in the order of the text."""
    return iter(sorted([*_FENCE.finditer(text), *_AT_END.finditer(text)], key=lambda line: line.start()))


def _blocks(lines: Iterator[re.Match[str]], languages: Sequence[str], *, strict: bool) -> Iterator[_Block | None]:
    """Yield each closed block, in order, and None at the end if one is left open. A block that is never closed contains no program."""
    fence, label, indent, start, wanted = "", "", "", 0, tuple(languages)
    for line in lines:
        margin, mark, rest = line.group(1), line.group(2), line.group(3) if line.re is _FENCE else ""
        own = line.re is _FENCE
        if not fence:
            if own and (mark[0] == "~" or "`" not in rest):
                fence, label, indent, start = mark, _label(rest), margin, line.end()
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip(" \t"):
            deeper = own and _width(margin) > _width(indent) + _SLACK
            if strict and deeper:
                continue
            yield _Block(_language(label, wanted), label, start, line.start() if own else line.end(1), len(indent))
            fence = ""
    if fence:
        yield None


@functools.lru_cache(maxsize=256)
def _language(label: str, languages: tuple[str, ...]) -> str | None:
    return next((name for name in languages if re.fullmatch(LANGUAGES[name].labels, label, re.DOTALL)), None)


def _label(rest: str) -> str:
    words = rest.strip(" \t")[:64].split(maxsplit=1)
    return words[0].lower() if words else ""


def _width(margin: str) -> int:
    return len(margin.expandtabs(_TAB))


def _dedented(text: str, block: _Block) -> str:
    """Return the block, with as much white space removed from each line as there is before its fence."""
    body = text[block.start : block.end]
    return re.sub(rf"(?:\A|(?<=[\r\n]))[ \t]{{1,{block.indent}}}+", "", body) if block.indent else body
