"""Writes the table of inference backends into docs/inference.md: ``python -m tools.backend_table``, or ``--check``, which exits 1 if the
page is not as the backends declare. Every distribution in ``plugins/backends`` that registers an inference backend has a column."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from rlcore.api import InferenceBackendSpec
from rlcore.testing.capability_table import capability_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "inference.md"
BEGIN, END = "<!-- backends: python -m tools.backend_table -->\n", "<!-- /backends -->"


def main() -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is not as the backends declare")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_table(page, capability_table(first_party()))
    if parser.parse_args().check:
        return 0 if page == fresh else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def first_party() -> list[InferenceBackendSpec]:
    """The inference backends of this repository."""
    packages = sorted((ROOT / "plugins" / "backends").glob("*/rlcore_plugin_*/__init__.py"))  # a build leaves *.egg-info beside them
    modules = [import_module(path.parent.name) for path in packages]
    return [spec for module in modules for spec in getattr(module, "rlcore_register_inference_backends", list)()]


def with_table(page: str, table: str) -> str:
    """The page with this table between the marks; ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the table stands between the two")
    return f"{before}{begin}\n{table}\n{end}{after}"


if __name__ == "__main__":
    raise SystemExit(main())
