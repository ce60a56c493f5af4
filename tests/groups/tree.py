"""The files of the repository as they lie in the working tree now."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

__all__ = ["Tree", "folder_of", "named"]


class Tree:
    """Files that git tracks or would track. ``changed`` puts other bytes in the place of a file's, for tests."""

    def __init__(self, root: Path, changed: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.root, self._changed = root, changed
        self._hashes: dict[str, str] = {}
        listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        self.paths = frozenset(name for name in listed if name and (root / name).is_file()) | frozenset(changed)
        self.folders = frozenset(folder for path in self.paths for folder in _above(path))

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        return self._changed[path] if path in self._changed else (self.root / path).read_bytes()

    def hash(self, path: str) -> str:
        """Of its bytes."""
        if path not in self._hashes:
            self._hashes[path] = blake2b(self.read(path), digest_size=12).hexdigest()
        return self._hashes[path]

    def below(self, folder: str) -> list[str]:
        """Every file in a folder and in those inside it."""
        return [path for path in self.paths if path.startswith(f"{folder}/")]


def named(paths: Iterable[str], pattern: str) -> list[str]:
    """Paths that ``pattern`` names: a file, a folder with all that is in it, or a glob whose ``*`` crosses folders."""
    return [path for path in paths if path == pattern or path.startswith(f"{pattern}/") or fnmatchcase(path, pattern)]


def folder_of(path: str) -> str:
    """The folder that a file is in; "" at the top."""
    return path.rpartition("/")[0]


def git(root: Path, *words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
