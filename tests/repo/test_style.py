"""Docstrings, messages and pages are written in plain English: a short list of patterns that do not come back, each with its better form.

The list has what a reader marked most often. It is not a grammar: a pattern is here only if nearly every hit is a fault. The words of the
glossary's last column are patterns, too. A hit that is right is named in ``ALLOWED``, by file and text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import nodes_below

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for package in (ROOT / "rlcore", *ROOT.glob("plugins/*/*/rlcore_plugin_*")) for path in package.rglob("*.py"))
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/*/README.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])

PATTERNS: dict[str, tuple[str, str]] = {
    "no adjective": (r"(?<!here )\b(is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b|doubt\b)\w", "say 'is not …' or 'there is no …'"),
    "what it": (
        r"\b[Ww]hat (it|they|he) (needs?|does|do|says?|offers?|has|have|is|are|reads?|takes?|makes?|costs?)\b",
        "name the thing: 'the packages that it needs'",
    ),
    "what as a subject": (
        r"(?:^|[.;:] )What (?!is\b|are\b|does\b|do\b|if\b|to\b|happens\b|an?\b|the\b|each\b|you\b|rlcore\b|it\b)\w+[^?|\n]*\.(?:\s|$)",
        "name the thing: 'The lines that …'",
    ),
    "who": (r"(?:(?<=[.:] )Who |^Who |\b[Ww]hoever\b|, who\b)", "name the actor: 'The caller that …'"),
    "where for if": (
        r"\b(None|True|False|empty|absent|0|\[\]|\"\") where\b|, where (it|there|they|that|none|nothing|no) (is|are|has|have|was|does)\b",
        "say 'if'",
    ),
    "goes on": (r"\b(goes|went|go|going) on\b(?! to the)", "say 'continues' or 'resumes'"),
    "stands": (r"\b(stands?|stood) (still|in its|in the|there|here|for itself|beside)\b", "say 'stalls', or 'is in'"),
    "at hand": (r"\bat hand\b", "say 'available'"),
    "nothing but": (r"\b([Nn]othing|[Nn]one|[Nn]o one) but\b", "say 'only'"),
    "in vain": (r"\bin vain\b", "say 'without success'"),
    "therefrom": (r"\b(thereof|therefrom|therein|whereto|wherefrom|whence|lest)\b", "say 'of it', 'from it', …"),
}
"""name -> (regular expression, better form)."""

ALLOWED = {
    ("docs/how_to/colossalai.md", "What it has"),
    ("docs/authors/kit.md", "what it does"),
    ("plugins/algos/grpo/rlcore_plugin_grpo/grpo.py", ", where it is"),
    ("rlcore/runtime/producer_thread.py", "pulse"),
    ("rlcore/runtime/watchdog.py", "pulse"),
}
"""(file, text of the hit) that is right as it is: headings, places, names of parameters."""
RECORDED = re.compile(r"<!-- (chaos|crash-matrix): begin -->.*?<!-- \1: end -->", re.DOTALL)
"""Tables that hold messages as they were printed when the table was recorded."""


def glossary_words() -> dict[str, str]:
    """The forbidden words of the glossary -> the word to use."""
    rows = re.findall(r"^\| ([\w ]+) \|.*\| ([\w, ]*)\|$", (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {bad.strip(): good for good, column in rows for bad in column.split(",") if bad.strip() and good != "word"}


def all_patterns() -> list[tuple[re.Pattern[str], str]]:
    """(pattern, better form) of the list and of the glossary."""
    own = [(re.compile(pattern, re.MULTILINE), better) for pattern, better in PATTERNS.values()]
    return own + [(re.compile(rf"\b{bad}s?\b", re.IGNORECASE), f"say '{good}'") for bad, good in glossary_words().items()]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings and messages of a module: each string with a space in it, pieces of one f-string together."""
    inside = set()
    for node in nodes_below(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            pieces = [value.value if isinstance(value, ast.Constant) else "{}" for value in node.values]
            yield node.lineno, "".join(str(piece) for piece in pieces)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and id(node) not in inside:
            yield node.lineno, node.value


def faults(source: str, *, page: bool = False) -> list[tuple[int, str, str]]:
    """(line, hit, better form) of each pattern that a module or a page holds. Code in pages, and examples in docstrings, are left out."""
    found = []
    for first, text in [(1, without_code(source))] if page else texts_of(source):
        flat, lines = one_line_a_paragraph(text)
        for pattern, better in all_patterns():
            found += [(first + lines[match.start()], match.group(), better) for match in pattern.finditer(flat)]
    return found


def one_line_a_paragraph(text: str) -> tuple[str, list[int]]:
    """Return the text with the lines of a paragraph joined by spaces, and the line of each character, from 0."""
    flat, lines, before = "", list[int](), ""
    for number, line in enumerate(text.split("\n")):
        words = line.strip()
        joined = before and words and words[0] not in "|#->*`"
        piece = (" " if joined else "\n") + words
        flat, before = flat + piece, words
        lines += [number] * len(piece)
    return flat[1:], lines[1:]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def without_code(page: str) -> str:
    """A page whose code blocks and code words are blank, with its lines where they were."""
    blocks = re.sub(r"^```.*?^```", _blank, RECORDED.sub(_blank, page), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", blocks)


@pytest.mark.parametrize("paths", [SHIPPED, PAGES], ids=["code", "pages"])
def test_plain_english(paths: list[Path]) -> None:
    assert len(paths) > 50
    lines = []
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if name == "docs/reference/glossary.md":
            continue
        found = faults(path.read_text(encoding="utf-8"), page=path.suffix == ".md")
        lines += [f"{name}:{line}: {hit!r}: {better}" for line, hit, better in found if (name, hit) not in ALLOWED]
    assert not lines, "\n".join(lines)


def test_an_allowed_text_is_still_there() -> None:
    assert [(name, hit) for name, hit in ALLOWED if hit not in (ROOT / name).read_text(encoding="utf-8")] == []


def test_the_glossary_is_short() -> None:
    rows = [line for line in (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) - 2 <= 40
    assert glossary_words()["crew"]


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("A file that is no JSON.", "is not"),
        ("Return what it needs.", "name the thing"),
        ("Who waits has a future.", "name the actor"),
        ("The spec, None where it is not installed.", "'if'"),
        ("The run goes on.", "continues"),
        ("The run trains in turns.", "alternating"),
        ("Nothing but the crew.", "'only'"),
    ],
)
def test_a_planted_fault_is_found(text: str, better: str) -> None:
    for source in (f'"""{text}"""\n', f'def f():\n    """{text}"""\n', f'raise Error(f"{{name}}: {text}")\n'):
        assert any(better in told for _, _, told in faults(source)), source
    assert any(better in told for _, _, told in faults(f"# Page\n\n{text}\n", page=True))


def test_a_fault_may_be_broken_over_lines() -> None:
    assert [line for line, _, _ in faults('"""A run.\n\nThe run goes\non.\n"""\n')] == [3]


@pytest.mark.parametrize("text", ["There is no file.", "It is no longer read.", "What is a lease?", "The place where it is stored."])
def test_plain_texts_are_left_alone(text: str) -> None:
    assert faults(f'"""{text}"""\n') == []
