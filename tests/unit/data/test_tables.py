"""Parquet files and saved `datasets` folders, where the libraries are installed."""

from __future__ import annotations

import json
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


def saved(folder: Path) -> Path:
    """A folder as ``Dataset.save_to_disk`` leaves it, written by hand: some versions of the library cannot hash a table to save it."""
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True)
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "dataset_info.json").write_text("{}", encoding="utf-8")
    files = [{"filename": "data-00000-of-00001.arrow"}]
    state = {"_data_files": files, "_fingerprint": "0", "_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state | {"_output_all_columns": False}), encoding="utf-8")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_saved_data_set(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    assert len(load_eval(saved(tmp_path / "one"), [])) == 2
    assert len(load_eval(saved(tmp_path / "many" / "train"), [])) == 2
    (tmp_path / "many" / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"several splits; name one of them, like .*SPLIT .it has: train"):
        load_eval(tmp_path / "many", [])


@pytest.mark.filterwarnings("ignore")
def test_a_hub_name_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match="write hf:NAME"):
        load_eval("hf:a:b:c:d", [])
