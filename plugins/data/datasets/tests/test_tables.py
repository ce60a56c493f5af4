"""Parquet files, saved `datasets` folders and names of the hub, with the real libraries."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from rlcore.api.data import DataError, install_line
from rlcore.testing import Registry, load_eval

REGISTRY = Registry.discover()
ROWS = [
    {"messages": [{"role": "user", "content": "1 + 2"}], "gt_answer": "3"},
    {"messages": [{"role": "user", "content": "2 + 2"}], "gt_answer": "4"},
]


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    data = load_eval(path, [], REGISTRY)
    assert [prompt.columns["gt_answer"] for prompt in data.prompts] == ["3", "4"]
    assert data.prompts[1].source == f"{path}:2"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load_eval(path, [], REGISTRY)


def saved(folder: Path) -> Path:
    """A folder as ``Dataset.save_to_disk`` leaves it."""
    datasets.Dataset.from_list(ROWS).save_to_disk(folder)
    return folder


def test_a_saved_data_set(tmp_path: Path) -> None:
    assert len(load_eval(saved(tmp_path / "one"), [], REGISTRY)) == 2
    assert len(load_eval(saved(tmp_path / "many" / "train"), [], REGISTRY)) == 2
    (tmp_path / "many" / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"several splits; name one, for example .*SPLIT .it has: train"):
        load_eval(tmp_path / "many", [], REGISTRY)


def test_a_hub_name_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="write hf:NAME"):
        load_eval("hf:a:b:c:d", [], REGISTRY)


@pytest.mark.parametrize(
    ("name", "answers"), [("", ["3", "4"]), (":test", ["4"]), (":default:train", ["3", "4"]), (":default:test", ["4"])]
)
def test_a_hub_name_means_repository_configuration_and_split(
    name: str, answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes a folder for the name of a repository, so that no network is needed."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for split, rows in (("train", ROWS), ("test", ROWS[1:])):
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{split}.parquet")
    data = load_eval(f"hf:{tmp_path}{name}", [], REGISTRY)
    assert [prompt.columns["gt_answer"] for prompt in data.prompts] == answers


def test_a_split_that_the_hub_has_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r":validation: the data set could not be loaded \(.*validation.*check name"):
        load_eval(f"hf:{tmp_path}:validation", [], REGISTRY)


def test_a_folder_that_no_library_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder, but not a saved `datasets` data set"):
        load_eval(tmp_path, [], REGISTRY)


def test_what_needs_an_absent_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    for path in (str(tmp_path / "train.parquet"), "hf:openai/gsm8k:main:train"):
        with pytest.raises(DataError, match=re.escape("type: " + install_line("rlcore[datasets]"))):
            load_eval(path, [], REGISTRY)
