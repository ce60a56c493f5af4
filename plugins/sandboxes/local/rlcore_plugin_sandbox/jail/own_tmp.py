"""Gives programs that name ``/tmp`` a folder of their own if no mount can. A convenience: the wall is Landlock."""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections.abc import Callable
from typing import Any

__all__ = ["redirect"]

_SHARED = "/tmp"
_OF_OS = (
    "open", "stat", "lstat", "access", "listdir", "scandir", "mkdir", "rmdir", "remove",
    "unlink", "rename", "replace", "readlink", "truncate", "chdir", "statvfs", "symlink",
)  # fmt: skip


def redirect(home: str) -> None:
    """From here on, Python's own functions take ``/tmp/x`` for ``home/x``."""
    os.environ["TMPDIR"] = os.environ["HOME"] = home
    for name in _OF_OS:
        setattr(os, name, _mapped(getattr(os, name), home))
    io.open = builtins.open = _mapped(builtins.open, home)


def _mapped(function: Callable[..., Any], home: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(_own(arg, home) for arg in args), **kwargs)

    return call


def _own(path: Any, home: str) -> Any:
    if isinstance(path, str) and (path == _SHARED or path.startswith(_SHARED + "/")) and not path.startswith(home):
        return home + path[len(_SHARED) :]
    return path
