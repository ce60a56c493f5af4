"""Rows from Parquet files and Hugging Face ``datasets``; both libraries are optional and imported only here."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlcore.api.data import DataError, RowSource, install_line

__all__ = ["HubRows", "ParquetFile"]

_PREFIX = "hf:"
_ALWAYS_UNPACKED = 1 << 30
_MOST_TIMES = 200
"""How many times its size a Parquet file may unpack to: columns with the same value in every row take almost no space."""


class ParquetFile(RowSource):
    """The data source ``parquet``."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource."""
        parquet = _optional("pyarrow.parquet", path)
        if not Path(path).is_file():
            raise DataError(f"{path}: is not a regular file; write the rows to a file and name that file")
        try:
            with parquet.ParquetFile(path) as file:
                batches = _bounded(path, file.iter_batches(batch_size=1024))
                yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise DataError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error


def _bounded(path: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of a file. DataError once they have too many bytes."""
    most = room = max(_ALWAYS_UNPACKED, _MOST_TIMES * Path(path).stat().st_size)
    for batch in batches:
        room -= batch.nbytes
        if room < 0:
            raise DataError(f"{path}: it unpacks to more than {most >> 20} MiB, the limit for a Parquet file of its size; save it as JSONL")
        yield batch


class HubRows(RowSource):
    """The data source ``hub``: data sets on the Hugging Face hub (``hf:NAME``, ``hf:NAME:SPLIT`` or ``hf:NAME:CONFIG:SPLIT``; the split is
    ``train`` if none is named), and folders written by ``Dataset.save_to_disk``."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource."""
        return enumerate(_of_hub(path) if path.startswith(_PREFIX) else _saved(Path(path)), start=1)


def _of_hub(name: str) -> Iterable[object]:
    datasets = _optional("datasets", name)
    parts = name.removeprefix(_PREFIX).split(":")
    if not all(parts) or len(parts) > 3:
        raise DataError(f"{name}: write hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, for example hf:openai/gsm8k:main:train")
    split = parts[-1] if len(parts) > 1 else "train"
    config = parts[1] if len(parts) == 3 else None
    try:
        rows: Iterable[object] = datasets.load_dataset(parts[0], config, split=split)
    except Exception as error:  # the library raises dozens of types for a name, a split or the network; the user can correct all of them
        raise DataError(f"{name}: the data set could not be loaded ({_first_line(error)}); check name, configuration and split") from error
    return rows


def _saved(folder: Path) -> Iterable[object]:
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))
        raise DataError(f"{folder}: the folder contains several splits; name one, for example {folder / 'SPLIT'} (it has: {splits})")
    if not (folder / "dataset_info.json").is_file():
        raise DataError(f"{folder}: a folder, but not a saved `datasets` data set; name a .jsonl or .parquet file in it")
    datasets = _optional("datasets", str(folder))
    try:
        rows: Iterable[object] = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise DataError(f"{folder}: the saved data set could not be loaded ({_first_line(error)}); save it again") from error
    return rows


def _optional(module: str, name: str) -> Any:
    missing = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({_first_line(error)})"
        raise DataError(f"{name}: reading this needs the package {missing}{reason}; type: {install_line('rlcore[datasets]')}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
