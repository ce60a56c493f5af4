"""How much code is the core? ``python -m tools.code_lines``.

Counts the lines that hold code, by tokens: no blank lines, comments and docstrings. A row for each package of ``rlcore/``, ``testing``
apart, and one for each distribution of ``plugins/``. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = "testing"
"""The package of the core that users of rlcore install and no run imports."""
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def main() -> int:
    """Count, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout (this one)")
    root = parser.parse_args().root
    core, plugins = by_package(root), by_distribution(root)
    for name, lines in [*core.items(), *plugins.items()]:
        print(f"{lines:7,} {name}")
    kit = core.pop(KIT, 0)
    print(json.dumps({"core": sum(core.values()), "testing": kit, "plugins": sum(plugins.values()), "packages": core}))
    return 0


def by_package(root: Path) -> dict[str, int]:
    """Package of ``rlcore`` -> lines of code; its own modules count as ``entry``."""
    counts: Counter[str] = Counter()
    for path in (root / "rlcore").rglob("*.py"):
        parts = path.relative_to(root / "rlcore").parts
        counts[parts[0] if len(parts) > 1 else "entry"] += code_lines(path.read_text(encoding="utf-8"))
    return dict(sorted(counts.items()))


def by_distribution(root: Path) -> dict[str, int]:
    """Folder of a plugin -> lines of code, its tests left out."""
    counts: Counter[str] = Counter()
    for project in sorted(root.glob("plugins/*/*/pyproject.toml")):
        for path in project.parent.glob("rlcore_*/**/*.py"):
            counts[project.parent.relative_to(root).as_posix()] += code_lines(path.read_text(encoding="utf-8"))
    return dict(counts)


def code_lines(source: str) -> int:
    """Lines that hold a token which is no comment, outside docstrings."""
    held = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(held - set(_lines_of_docstrings(source)))


def _lines_of_docstrings(source: str) -> Iterator[int]:
    """Those of attributes, a string alone below an assignment, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
                    yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


if __name__ == "__main__":
    raise SystemExit(main())
