"""Which data source reads a path, what a plugin's faults become, JSON lists; the built-in sources keep the rules of the suite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcore.api.data import BadRow, DataError, RowSource
from rlcore.config.data_source import source_of
from rlcore.config.run_config import DataSource
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import DataSourceSpec
from rlcore.data import load_eval
from rlcore.data.jsonl import JsonFile, JsonLines
from rlcore.data.prompts import read_rows
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import DataSourceSuite

ROWS = [{"messages": {"role": "user", "content": f"{number} + 1"}, "gt_answer": str(number + 1)} for number in (1, 2, 3)]


@pytest.fixture
def registry() -> Registry:
    return Registry.discover([])


# --- who reads it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("train.jsonl", "jsonl"),
        ("train.txt", "jsonl"),
        ("train", "jsonl"),
        ("hf.jsonl", "jsonl"),
        ("a.b.json", "json"),
        ("t.csv", "csv"),
        ("t.csv.gz", "csv"),
        ("t.json.gz", "json"),
        ("t.jsonl.gz", "jsonl"),
        ("t.parquet", "parquet"),
        ("hf:a/b.csv", "hub"),
    ],
)
def test_prefix_and_suffix_choose(path: str, name: str, registry: Registry) -> None:
    assert source_of(DataSource(path=path), registry) == name


def test_a_folder_is_read_by_who_reads_folders_and_a_name_beats_all(tmp_path: Path, registry: Registry) -> None:
    folder = tmp_path / "t.csv"
    folder.mkdir()
    assert source_of(DataSource(path=str(folder)), registry) == "hub"
    assert source_of(DataSource(path="hf:a.csv", source="parquet"), registry) == "parquet"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "folder", "hf:a/b"])
def test_what_a_plugin_reads_that_is_not_installed_is_not_read_as_json_lines(name: str, tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "folder").mkdir()
    path = name if name.startswith("hf:") else str(tmp_path / name)
    if name.startswith("t."):
        (tmp_path / name).write_text(json.dumps(ROWS[0]))
    with pytest.raises(NotInstalledError, match=r"data source '[a-z]+' is not installed: pip install .*datasets"):
        load_eval(path, [], registry)


def test_a_suffix_that_an_installed_plugin_claims_is_that_plugin_s(registry: Registry) -> None:
    registry.add("data", DataSourceSpec(name="mine", target="a.b:C", summary="", suffixes=(".csv",)))
    assert source_of(DataSource(path="x.csv"), registry) == "mine"


def test_the_longest_suffix_wins_and_two_that_claim_one_are_refused(registry: Registry) -> None:
    for name, suffix in (("long", ".train.csv"), ("ini", ".ini"), ("other", ".ini")):
        registry.add("data", DataSourceSpec(name=name, target="a.b:C", summary="", suffixes=(suffix,)))
    assert source_of(DataSource(path="x.train.csv"), registry) == "long"
    with pytest.raises(PluginError, match=r'x.ini is claimed by the data sources ini and other; .*source = "ini"'):
        source_of(DataSource(path="x.ini"), registry)
    assert source_of(DataSource(path="x.ini", source="other"), registry) == "other"


# --- faults of a plugin ----------------------------------------------------------------------------------------------------


class Raises(RowSource):
    """Fails at the second row."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        yield 1, ROWS[0]
        raise KeyError(path)


class Exits(RowSource):
    """Ends the process."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        raise SystemExit(5)


@pytest.mark.parametrize(("source", "said"), [(Raises, "KeyError: 'anything'"), (Exits, "SystemExit: 5")])
def test_whatever_a_plugin_raises_is_one_sentence(source: type, said: str, registry: Registry) -> None:
    name = registry.add("data", source)
    with pytest.raises(DataError, match=f"^anything: the data source {name} of .* failed .*{said}"):
        list(read_rows(DataSource(path="anything", source=name), registry))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((2, "text"), "^anything:2: the data source some of .* yielded text .'text'. as this row, not a mapping; fix the plugin"),
        ((7, None), "^anything:7: .* yielded null as this row"),
        (ROWS[0], "^anything: the data source some of .* yielded an object as item 2, not a pair of a number and a row; fix"),
        ((1, 2, 3), "yielded a list as item 2, not a pair"),
        (("one", ROWS[0]), "yielded a list as item 2, not a pair of a number and a row"),
    ],
)
def test_what_is_no_row_is_blamed_on_the_source_that_yielded_it(item: Any, said: str, registry: Registry) -> None:
    class Some(RowSource):
        def rows(self, path: str) -> Iterator[Any]:
            yield 1, ROWS[0]
            yield item

    registry.add("data", Some, name="some")
    with pytest.raises(DataError, match=said):
        list(read_rows(DataSource(path="anything", source="some"), registry))


def test_what_is_no_row_of_a_file_is_a_fault_of_the_file(tmp_path: Path, registry: Registry) -> None:
    for name, text in (("a.jsonl", '{"messages": []}\n3\n'), ("a.json", '[{"messages": []}, 3]')):
        (tmp_path / name).write_text(text)
        rows = list(read_rows(DataSource(path=str(tmp_path / name)), registry))
        assert [str(row) for _, row in rows if isinstance(row, BadRow)] == [
            'a row must be an object like {"messages": …, "gt_answer": "3"}, not a number (3)'
        ]


def test_a_source_by_name_gives_the_path_any_meaning(registry: Registry) -> None:
    class Counts(RowSource):
        """Makes rows."""

        def rows(self, path: str) -> Iterator[tuple[int, object]]:
            yield from enumerate(ROWS[: int(path)], start=1)

    name = registry.add("data", Counts)
    assert len(list(read_rows(DataSource(path="2", source=name), registry))) == 2


# --- JSON ------------------------------------------------------------------------------------------------------------------


def test_a_json_file_holds_a_list_or_a_row_a_line(tmp_path: Path, registry: Registry) -> None:
    whole, lines = tmp_path / "whole.json", tmp_path / "lines.json"
    whole.write_text("﻿\n" + json.dumps(ROWS, indent=1), encoding="utf-8")
    lines.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    first, second = load_eval(whole, [], registry), load_eval(lines, [], registry)
    assert [prompt.messages for prompt in first.prompts] == [prompt.messages for prompt in second.prompts]
    assert first.prompts[2].source == f"{whole}:3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[\n{]", ":2: not JSON at column 2"),
        (b'[{"a": NaN}]', ": NaN is not JSON"),
        (b'[{"a": 1, "a": 2}]', ': the key "a" occurs twice'),
        (b'["\xff"]', ": byte 2 of the file is not UTF-8"),
        (b"[3]", ":1: a row must be an object"),
        (b"[]", ": the data is empty"),
    ],
)
def test_a_json_list_that_is_damaged(text: bytes, said: str, tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(text)
    with pytest.raises(DataError) as caught:
        load_eval(path, [], registry)
    assert str(caught.value).startswith(f"{path}{said}")


# --- the suite ---------------------------------------------------------------------------------------------------------------


class OfFiles(DataSourceSuite):
    """Sources of files of this host."""

    name = ""

    def write(self, path: Path) -> None:
        raise NotImplementedError

    def path(self, folder: Path) -> str:
        self.write(folder / self.name)
        return str(folder / self.name)

    def missing(self, folder: Path) -> str:
        return str(folder / f"absent-{self.name}")

    def damaged(self, folder: Path) -> str:
        (folder / f"damaged-{self.name}").write_bytes(b'[{"\xff\n')
        return str(folder / f"damaged-{self.name}")


class TestJsonLines(OfFiles):
    name = "t.jsonl"

    def make(self) -> RowSource:
        return JsonLines()

    def write(self, path: Path) -> None:
        path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")


class TestJsonFile(OfFiles):
    name = "t.json"

    def make(self) -> RowSource:
        return JsonFile()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(ROWS), encoding="utf-8")


class Drains(RowSource):
    """Has its rows once."""

    def __init__(self) -> None:
        self._rows = enumerate(ROWS, start=1)

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return self._rows


class Falls(RowSource):
    """Counts down."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return iter((3 - place, row) for place, row in enumerate(ROWS))


class Lists(RowSource):
    """Yields what is no row."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return iter((place, list(row)) for place, row in enumerate(ROWS, start=1))


class SaysNothing(RowSource):
    """Says nothing of a file that is absent."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return enumerate(ROWS if Path(path).exists() else [], start=1)


@pytest.mark.parametrize(
    ("source", "test"),
    [
        (Drains, "test_reading_again_gives_the_same"),
        (Falls, "test_numbers_rise_from_one"),
        (Lists, "test_every_row_is_taken"),
        (SaysNothing, "test_what_cannot_be_read_is_said"),
    ],
)
def test_a_broken_source_fails(source: type[RowSource], test: str, tmp_path: Path) -> None:
    class Suite(TestJsonLines):
        def make(self) -> RowSource:
            return source()

    with pytest.raises(AssertionError):
        getattr(Suite(), test)(tmp_path)
