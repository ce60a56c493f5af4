"""Writes the rules of the suites into docs/authors/kit.md: ``python -m tools.suite_page``, or ``--check``: exits 1 if it is stale.

The source is read and not imported: the docstrings of suites, of their rules (methods ``test_…``) and of the modules of fakes.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "rlcore" / "testing"
PAGE = ROOT / "docs" / "authors" / "kit.md"
BEGIN, END = "<!-- suites: python -m tools.suite_page -->\n", "<!-- /suites -->"
KINDS = {
    "rewards": "Rewards",
    "algorithms": "Algorithms",
    "inference": "Inference backends",
    "training": "Training backends",
    "transfers": "Weight transfers",
    "conversations": "Conversations",
    "data": "Data sources and row formats",
    "sandboxes": "Sandboxes",
    "trackers": "Trackers",
    "control": "Controllers",
    "sampling": "Samplers",
    "runtimes": "Runtimes",
}
"""Packages of the kit, in the order of the page; those that are not here stand at its end."""
FAKES = ("fake_", "faulty_")
"""How the name of a module of fakes begins."""


def main() -> int:
    """Write the rules, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is stale")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_suites(page)
    if parser.parse_args().check:
        return 0 if page == fresh else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def with_suites(page: str) -> str:
    """Return the page with the suites of today between the marks; ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the suites stand between the two")
    suites = "\n".join(_sections())
    return f"{before}{begin}\n{_index()}\n{suites}\n\n{end}{after}"


@dataclass(frozen=True)
class RuleClass:
    """A class of a suite: its docstring, its rules by name, and the classes that it inherits rules from, by name."""

    text: str
    rules: dict[str, str] = field(default_factory=dict)
    bases: tuple[str, ...] = ()


def rule_classes(folder: Path) -> dict[str, RuleClass]:
    """Return the classes of a package that have rules of their own or inherit some, by name."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                rules = {
                    each.name: ast.get_docstring(each) or ""
                    for each in node.body
                    if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
                }
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                found[node.name] = RuleClass(ast.get_docstring(node) or "", rules, bases)
    return {name: one for name, one in found.items() if any(each.rules for each in lineage(name, found).values())}


def lineage(name: str, known: dict[str, RuleClass]) -> dict[str, RuleClass]:
    """Return a class and all that it inherits from, each once, in the order of its bases."""
    found = {name: known[name]}
    for base in known[name].bases:
        found |= {each: one for each, one in (lineage(base, known) if base in known else {}).items() if each not in found}
    return found


def _packages() -> list[str]:
    found = {folder.name for folder in KIT.iterdir() if (folder / "__init__.py").is_file()}
    return [*KINDS, *sorted(found - set(KINDS))]


def _suites(known: dict[str, RuleClass]) -> list[str]:
    return sorted(set(known) - {base for one in known.values() for base in one.bases})


def _index() -> str:
    """Return a table of the suites by kind, with links."""
    rows = ["| kind | suites |", "|---|---|"]
    for package in _packages():
        links = ", ".join(f"[`{name}`](#{name.lower()})" for name in _suites(rule_classes(KIT / package)))
        rows.append(f"| {KINDS.get(package, package.capitalize())} | {links} |")
    return "\n".join(rows)


def _sections() -> Iterator[str]:
    for package in _packages():
        yield f"\n## {KINDS.get(package, package.capitalize())}"
        known = rule_classes(KIT / package)
        for name in _suites(known):
            yield f"\n### `{name}`"
            for each, one in lineage(name, known).items():
                yield from _rules(each, one, whole=each == name)
        yield from _fakes(KIT / package)


def _rules(name: str, one: RuleClass, *, whole: bool) -> Iterator[str]:
    if whole or one.rules:
        yield f"\n{_markdown(one.text)}" if whole else f"\n**`{name}`.** {_markdown(one.text)}"
    if one.rules:
        yield from ("", "| rule | test |", "|---|---|")
        yield from (f"| {_cell(text)} | `{rule}` |" for rule, text in one.rules.items())


def _fakes(folder: Path) -> Iterator[str]:
    modules = [path for path in sorted(folder.glob("*.py")) if path.name.startswith(FAKES)]
    if modules:
        yield from ("\nFakes:", "")
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith(("Fake", "Faulty"))]
        offered = ", ".join(f"`{name}`" for name in names if not name.endswith("Options"))
        text = _cell((ast.get_docstring(tree) or "").partition("\n\n")[0])
        yield f"- `rlcore.testing.{folder.name}.{path.stem}`{f' ({offered})' if offered else ''}: {text}"


def _markdown(text: str) -> str:
    """Return a docstring as Markdown, one line a paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.replace("``", "`").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(_markdown(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
