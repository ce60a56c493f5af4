"""The folder of this user's cache. What is in it may be deleted at any time, and is made again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["cached_bytes", "keep_bytes", "user_cache"]


def user_cache() -> Path | None:
    """Return ``rlcore`` in XDG_CACHE_HOME, or in ``~/.cache``; None if the user has no home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    path = (cache if cache.is_absolute() else Path(os.environ.get("HOME", "")) / ".cache") / "rlcore"
    return path if path.is_absolute() else None


def cached_bytes(name: str) -> bytes | None:
    """Return the content of a file of the cache; None if it is not there or cannot be read."""
    folder = user_cache()
    if folder is None:
        return None
    try:
        return (folder / name).read_bytes()
    except OSError:
        return None


def keep_bytes(name: str, content: bytes, *, newest: int = 0) -> None:
    """Write a file of the cache, whole or not at all. Does nothing if the cache cannot be written.

    :param newest: the number of files that stay in the file's folder; 0 if all stay."""
    if (folder := user_cache()) is None:
        return
    path = folder / name
    written = path.with_name(f"{path.name}.{os.getpid()}")  # two commands may write at the same time
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)
        written.replace(path)
        if newest:
            for old in sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)[newest:]:
                old.unlink(missing_ok=True)
