"""Checks that files are unchanged: a checksum next to each file of a checkpoint, and a quick fingerprint of a model's weights.

This module handles bytes only, not tensors or ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlcore.api import RunError

__all__ = ["SUFFIX", "check_files", "fingerprint", "write_checksum"]

SUFFIX = ".sha256"
_THREADS = 8
"""Files that are read in parallel; hashing lets other threads run."""
_BLOCK, _BLOCKS = 1 << 16, 64
"""Bytes of a block of a fingerprint, and blocks of a file."""
_CONFIG = "config.json"
_NOT_COMPUTING = frozenset({"_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache"})
"""Fields that do not affect a trainer: it chooses the precision itself, and keeps no cache."""


def write_checksum(file: Path) -> None:
    """Write ``FILE.sha256`` next to a file, as the program ``sha256sum`` does; ``sha256sum -c *.sha256`` checks a folder as well."""
    with _beside(file).open("w", encoding="utf-8") as stream:
        stream.write(f"{_sha256(file)}  {file.name}\n")
        stream.flush()
        os.fsync(stream.fileno())


def check_files(files: Sequence[Path]) -> None:
    """Read each of these files completely, several at a time.

    Raises RunError, which names the file, if one is absent, has no checksum next to it, or holds other bytes than those that were written.
    """
    with ThreadPoolExecutor(_THREADS) as readers:
        for problem in readers.map(_problem, files):
            if problem:
                raise RunError(f"{problem}; copy the checkpoint again")


def _problem(file: Path) -> str:
    try:
        written = _beside(file).read_text(encoding="utf-8", errors="replace").split()
        found = _sha256(file)
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"
    return "" if written[:1] == [found] else f"{file} is damaged: its bytes are not those that were written (its sha256 differs)"


def _beside(file: Path) -> Path:
    return file.with_name(file.name + SUFFIX)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(folder: Path) -> dict[str, str]:
    """Return for each weight file of a model's folder its size and a sha256, and for ``config.json`` a sha256.

    The sha256 of a weight file covers the whole file up to 4 MiB. For a larger file it covers the beginning and 64 blocks of 64 KiB, spread
    over the file. The sha256 of ``config.json`` covers the fields that a forward pass computes with. Returns {} if ``folder`` does not
    exist or holds no weights.

    This takes milliseconds for a file of any size and does not depend on when a file was copied. It detects training, which changes nearly
    every number, and another precision or model, which changes the size or the header. It misses a change between two blocks of a large
    file (a flipped bit, one small layer).
    """
    weights = {file.name: _sampled(file) for file in _weight_files(folder)}
    return {**weights, _CONFIG: _computing(folder / _CONFIG)} if weights else {}


def _computing(file: Path) -> str:
    fields = {name: value for name, value in json.loads(file.read_text(encoding="utf-8")).items() if name not in _NOT_COMPUTING}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers reads: one file, or the shards of an index."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            shards: Mapping[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return [folder / shard for shard in sorted(set(shards.values()))]
    return []


def _sampled(file: Path) -> str:
    size, digest = file.stat().st_size, hashlib.sha256()
    with file.open("rb") as stream:
        if size <= _BLOCK * _BLOCKS:
            digest.update(stream.read())
        else:
            # The header of a safetensors file: its length in 8 bytes, then the names, shapes and places of its tensors.
            length = int.from_bytes(stream.read(8), "little")
            stream.seek(0)
            digest.update(stream.read(8 + min(length, _BLOCK * _BLOCKS)))
            for number in range(_BLOCKS):
                stream.seek((size - _BLOCK) * number // (_BLOCKS - 1))
                digest.update(stream.read(_BLOCK))
    return f"{size}:{digest.hexdigest()}"
