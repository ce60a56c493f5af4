"""Rows as they were published, of every plugin of this repository: each is recognised by one row format, and by no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.registry.plugin_registry import Registry

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("plugins/*/*/tests/rows/*.jsonl"))
BESIDE = ("completion", "finish")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.discover()


def test_there_are_rows_of_every_plugin_that_has_formats(registry: Registry) -> None:
    owners = {registry.owner("format", name).removeprefix("rlcore-plugin-") for name in registry.names("format")}
    assert owners == {file.parents[2].name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parents[2].name}-{file.stem}")
def test_one_format_recognises_each_row(file: Path, registry: Registry) -> None:
    formats = {name: registry.make("format", name) for name in registry.names("format")}
    found = set()
    for line in file.read_text(encoding="utf-8").splitlines():
        row = {key: value for key, value in json.loads(line).items() if key not in BESIDE}
        found.add(tuple(name for name, format in formats.items() if format.recognises(row)))
    assert len(found) == 1, f"the rows of one file are of several formats: {found}"
    assert len(next(iter(found))) == 1, f"a row is of {found}"
