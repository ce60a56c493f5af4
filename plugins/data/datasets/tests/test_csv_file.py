"""CSV files: cells, columns, delimiters, damage; the sources of files keep the rules of the suite."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from rlcore_plugin_datasets.csv_file import CsvFile, CsvOptions
from rlcore_plugin_datasets.tables import ParquetFile

from rlcore.api.data import BadRow, DataError, RowSource
from rlcore.testing import DataSourceSuite, Registry, load_eval

REGISTRY = Registry.discover()
MIB = 1 << 20
ROWS = [{"messages": {"role": "user", "content": f"{number} + 1"}, "gt_answer": str(number + 1)} for number in (1, 2, 3)]
ROW = '{"messages": {"role": "user", "content": "é"}, "gt_answer": "3"}'


def csv_rows(text: str, folder: Path, **options: str) -> list[tuple[int, Any]]:
    path = folder / "train.csv"
    path.write_text(text, encoding="utf-8")
    return list(CsvFile(CsvOptions(**options)).rows(str(path)))


def test_csv_cells_are_text_and_empty_ones_absent(tmp_path: Path) -> None:
    rows = csv_rows('prompt,gt_answer,level\n"one, two",3,\nx,4,9\n', tmp_path)
    assert rows == [
        (2, {"gt_answer": "3", "messages": {"role": "user", "content": "one, two"}}),
        (3, {"gt_answer": "4", "level": "9", "messages": {"role": "user", "content": "x"}}),
    ]
    assert csv_rows("q;gt_answer\na;b\n", tmp_path, prompt="q", delimiter=";")[0][1]["messages"]["content"] == "a"
    quoted = '"[{""role"": ""user"", ""content"": ""a""}]"'
    csv_rows(f"messages,gt_answer\n{quoted},b\n", tmp_path)
    assert load_eval(tmp_path / "train.csv", [], REGISTRY).prompts[0].messages[0].content == "a"


def test_csv_rows_that_do_not_fit_are_told(tmp_path: Path) -> None:
    assert isinstance(csv_rows("prompt,gt_answer\na,b,c\n", tmp_path)[0][1], BadRow)
    assert "not JSON" in str(csv_rows("messages\nhello\n", tmp_path)[0][1])
    with pytest.raises(DataError, match="not a readable CSV file"):
        csv_rows('prompt\n"open\n', tmp_path)


@pytest.mark.parametrize(("header", "option"), [("question", "prompt"), ("prompt", "question")])
def test_a_csv_row_without_its_prompt_is_told_the_column(header: str, option: str, tmp_path: Path) -> None:
    ((_, row),) = csv_rows(f"{header},gt_answer\n1 + 2,3\n", tmp_path, prompt=option)
    said = f'the row has no "{option}", which is the user\'s message (it has {header}, gt_answer); '
    assert str(row) == f'{said}fill that column, or name another: options = {{prompt = "…"}}'


def test_csv_columns_by_other_names_are_handed_on(tmp_path: Path) -> None:
    assert csv_rows("question,answer\n1 + 2,3\n", tmp_path) == [(2, {"question": "1 + 2", "answer": "3"})]
    ((_, row),) = csv_rows("prompt,answer\n,3\n", tmp_path)
    assert 'the row has no "prompt"' in str(row), "an empty cell is no other name"


def test_a_csv_file_packed_with_gzip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.csv.gz"
    path.write_bytes(gzip.compress(codecs.BOM_UTF8 + "prompt,gt_answer\né,3\né,3\n".encode()))
    data = load_eval(path, [], REGISTRY)
    assert [(prompt.messages[-1].content, prompt.columns["gt_answer"]) for prompt in data.prompts] == [("é", "3")] * 2


def test_json_in_a_csv_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(f"{ROW}\n{ROW}\n")
    with pytest.raises(DataError, match=r"train\.csv: the file contains JSON, not CSV; .*name must end in \.jsonl"):
        load_eval(tmp_path / "train.csv", [], REGISTRY)


class OfTables(DataSourceSuite):
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


class TestCsvFile(OfTables):
    name = "t.csv"

    def make(self) -> RowSource:
        return CsvFile(CsvOptions())

    def write(self, path: Path) -> None:
        path.write_text("prompt,gt_answer\n1 + 1,2\n2 + 1,3\n", encoding="utf-8")


class TestParquetFile(OfTables):
    name = "t.parquet"

    def make(self) -> RowSource:
        return ParquetFile()

    def write(self, path: Path) -> None:
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


def test_a_cell_may_be_as_long_as_what_a_model_writes(tmp_path: Path) -> None:
    assert csv_rows(f"prompt,completion\na,{'x' * 200_000}\n", tmp_path)[0][1]["completion"] == "x" * 200_000


def test_a_header_that_names_a_column_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='names the column "completion" twice'):
        csv_rows("prompt,completion,completion\na,right,wrong\n", tmp_path)


def test_a_file_with_another_delimiter_is_told_about_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the delimiter is ','.*delimiter"):
        csv_rows('question;answer\n"1+1";2\n', tmp_path)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("a," + "x" * MIB, 2),
        ('a,"' + f"{'x' * 1022}\n\n" * 2 * 1024, 2 * 1024),
        ('"a",' + f'"{"x" * 1020}\n",' * 2 * 1024, 1024 + 1),
        (f"a,b\nc,{'x' * MIB}", 3),
    ],
)
def test_a_row_without_an_end_is_refused_with_its_line(rows: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_plugin_datasets.csv_file.LONGEST_ROW", MIB)
    with pytest.raises(DataError, match=rf"train\.csv:{line}: the row has more than 1 MiB, the limit for one row"):
        csv_rows(f"prompt,gt_answer\n{rows}", tmp_path)


def test_many_rows_are_together_longer_than_one_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_plugin_datasets.csv_file.LONGEST_ROW", 1000)
    assert len(csv_rows("prompt,gt_answer\n" + 'a,"b\nb"\n' * 1000, tmp_path)) == 1000


def test_a_parquet_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_plugin_datasets.tables._ALWAYS_UNPACKED", 1 << 20)
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"messages": ["x" * 10_000] * 10_000}), path)
    with pytest.raises(DataError, match=r"t\.parquet: it unpacks to more than \d+ MiB, the limit for a Parquet file of its size"):
        list(ParquetFile().rows(str(path)))
