"""A private folder for programs that use ``/tmp`` when no mount can provide one. This is a convenience; the wall is Landlock."""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["redirect"]

_SHARED = "/tmp"
_OF_OS = (
    "open", "stat", "lstat", "access", "listdir", "scandir", "mkdir", "rmdir", "remove",
    "unlink", "rename", "replace", "readlink", "truncate", "chdir", "statvfs", "symlink",
)  # fmt: skip


def redirect(home: str, shown: Sequence[str]) -> None:
    """Let Python's own functions replace ``/tmp/x`` with ``home/x`` from now on, except for paths in the folders ``shown``."""
    os.environ["TMPDIR"] = os.environ["HOME"] = home
    stays = (home, *(folder for folder in shown if folder.startswith(_SHARED + "/")))
    for name in _OF_OS:
        setattr(os, name, _mapped(getattr(os, name), home, stays))
    io.open = builtins.open = _mapped(builtins.open, home, stays)


def _mapped(function: Callable[..., Any], home: str, stays: tuple[str, ...]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(_own(arg, home, stays) for arg in args), **kwargs)

    return call


def _own(path: Any, home: str, stays: tuple[str, ...]) -> Any:
    if not isinstance(path, str) or not (path == _SHARED or path.startswith(_SHARED + "/")):
        return path
    if any(path == folder or path.startswith(folder + "/") for folder in stays):
        return path
    return home + path[len(_SHARED) :]
