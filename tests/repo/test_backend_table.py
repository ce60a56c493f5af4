"""The table of inference backends in the docs says what the backends declare."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from rlcore.api import InferenceBackendSpec, InferenceCapabilities
from rlcore.testing.fake_plugin import FAKE_INFERENCE
from tools import backend_table
from tools.backend_table import WORDS, capability_table


def test_the_table_in_the_docs_is_fresh() -> None:
    page = backend_table.PAGE.read_text(encoding="utf-8")
    fresh = backend_table.with_table(page, capability_table(backend_table.first_party()))
    assert page == fresh, "docs/how_to/inference.md is stale: type .venv/bin/python -m tools.backend_table"
    assert "`transformers`" in page


def test_every_capability_has_a_line_and_every_backend_a_column() -> None:
    assert set(WORDS) == {field.name for field in fields(InferenceCapabilities)}
    spec = InferenceBackendSpec(name="one", target="m:C", summary="one", capabilities=FAKE_INFERENCE)
    other = replace(spec, name="another", capabilities=None)
    lines = capability_table([spec, other]).splitlines()
    assert lines[0] == "| capability | `another` | `one` |"
    assert len(lines) == 2 + len(WORDS)
    assert all(line.count("|") == 4 for line in lines)
    assert next(line for line in lines if "`sleeps`" in line).endswith("| not declared | yes |")
    assert next(line for line in lines if "`kinds`" in line).endswith("| `adapter`, `delta`, `full` |")
    assert next(line for line in lines if "`details`" in line).endswith("| nothing |")


def test_a_page_without_the_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        backend_table.with_table("no marks", "a table")
