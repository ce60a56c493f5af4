"""What is installed cites only what is installed: no docstring sends its reader to a page, a test or a design that no wheel holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.syntax import nodes

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for package in (ROOT / "rlcore", *ROOT.glob("plugins/*/*/rlcore_plugin_*")) for path in package.rglob("*.py"))
CITATIONS = {
    "a folder of the repository": r"(?<![\w./])(docs|tests|benchmarks|tools|recipes|plugins|\.ci)/",
    "a page": r"\b[\w-]+\.md\b",
    "a design": r"(?<![\w.])(CONTRACTS|ARCHITECTURE|REFERENCE|NEXT)\b|\b[Aa]rchitecture('s)? (section|promise)",
    "a section of nothing": r"\(sections? \d",
    "an issue": r"\b[Ii]ssue #?\d|(?<!\w)#\d+",
}


def docstrings(source: str) -> list[tuple[int, str]]:
    """(line, text) of every text that stands alone: docstrings, also those of attributes."""
    found = [node for node in nodes(source) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [(node.lineno, node.value.value) for node in found if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]


def citations(source: str) -> list[str]:
    """``line: what it cites: the text`` for all that no wheel holds."""
    return [
        f"{line}: {what}: {match.group()}"
        for line, text in docstrings(source)
        for what, pattern in CITATIONS.items()
        for match in re.finditer(pattern, text)
    ]


def test_docstrings_cite_only_what_is_shipped() -> None:
    found = {str(path.relative_to(ROOT)): citations(path.read_text(encoding="utf-8")) for path in SHIPPED}
    assert len(SHIPPED) > 200
    assert [f"{path}:{one}" for path, cited in found.items() for one in cited] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("See docs/how_to/sandbox.md.", "a folder of the repository"),
        ("What ``benchmarks/simulation.py`` measures.", "a folder of the repository"),
        ("The manual is rewards.md.", "a page"),
        ("As CONTRACTS say.", "a design"),
        ("The order of architecture section 4.", "a design"),
        ("It is finite (section 6, Reward).", "a section of nothing"),
        ("Since issue 14.", "an issue"),
        ("See #12.", "an issue"),
    ],
)
def test_a_planted_citation_is_found(text: str, what: str) -> None:
    for source in (f'"""{text}"""\n', f'def f():\n    """{text}"""\n', f'class C:\n    x = 1\n    """{text}"""\n'):
        assert any(cited.split(": ")[1] == what for cited in citations(source))


@pytest.mark.parametrize("text", ["``./my.py:MyLoss``", "GRPO, section 4.1", "site-packages/tests/x", "C#4", "NEXT_STEP"])
def test_other_texts_are_left_alone(text: str) -> None:
    assert citations(f'"""{text}"""\n') == []
