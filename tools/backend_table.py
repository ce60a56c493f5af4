"""Writes the table of inference backends into docs/how_to/inference.md: ``python -m tools.backend_table``, or ``--check``, which exits 1 if
the page is not as the backends declare. Every distribution in ``plugins/backends`` that registers an inference backend has a column."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from rlcore.api import InferenceBackendSpec, InferenceCapabilities

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how_to" / "inference.md"
BEGIN, END = "<!-- backends: python -m tools.backend_table -->\n", "<!-- /backends -->"

WORDS = {
    "in_flight": "running requests when the weights change",
    "sleeps": "releases its device and takes it again",
    "sleeps_on": "the devices that it releases, if not all",
    "scores": "answers the probe",
    "counter_noise": "a draw depends on its noise alone, whatever else is in the batch",
    "continues": "resumes from the tokens of an aborted request",
    "layouts": "ways to spread it over processes",
    "dtypes": "precisions that it computes in",
    "devices": "devices that it computes on",
    "transfers": "ways to receive weights",
    "kinds": "possible contents of a version of the weights",
    "sampling": "settings of a request that it follows, beyond temperature, top-p, top-k, length and stop strings",
    "details": "details of each token that it reports",
    "implementation": "the library of its forward pass",
    "reproducible": "equality of two runs, on the CPU",
}
"""A line for each field of ``InferenceCapabilities``."""


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


def capability_table(specs: Iterable[InferenceBackendSpec]) -> str:
    """The table, in the order of the names; KeyError for a capability that has no line here."""
    columns = {spec.name: spec.capabilities for spec in sorted(specs, key=lambda spec: spec.name)}
    lines = [_row(["capability", *(f"`{name}`" for name in columns)]), _row(["---"] * (len(columns) + 1))]
    for field in fields(InferenceCapabilities):
        cells = [_cell(getattr(record, field.name, None)) for record in columns.values()]
        lines.append(_row([f"`{field.name}`: {WORDS[field.name]}", *cells]))
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(f"`{one}`" for one in sorted(value)) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not declared" if value is None else f"`{value}`"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def with_table(page: str, table: str) -> str:
    """The page with this table between the marks; ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the table stands between the two")
    return f"{before}{begin}\n{table}\n{end}{after}"


if __name__ == "__main__":
    raise SystemExit(main())
