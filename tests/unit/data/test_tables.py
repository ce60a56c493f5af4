"""Parquet files and saved `datasets` folders, where the libraries are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.data import load_eval
from rlcore.errors import DataError

ROWS = [
    {"messages": [{"role": "user", "content": "1 + 2"}], "gt_answer": "3"},
    {"messages": [{"role": "user", "content": "2 + 2"}], "gt_answer": "4"},
]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    data = load_eval(path, [])
    assert [prompt.columns["gt_answer"] for prompt in data.prompts] == ["3", "4"]
    assert data.prompts[1].source == f"{path}:2"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        load_eval(path, [])


@pytest.mark.filterwarnings("ignore")  # `datasets` pickles classes of its own dependencies
def test_a_saved_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(ROWS)
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": table}).save_to_disk(tmp_path / "many")
    assert len(load_eval(tmp_path / "one", [])) == len(load_eval(tmp_path / "many" / "train", [])) == 2
    with pytest.raises(DataError, match="several splits"):
        load_eval(tmp_path / "many", [])


@pytest.mark.filterwarnings("ignore")
def test_a_hub_name_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match="write hf:NAME"):
        load_eval("hf:a:b:c:d", [])
