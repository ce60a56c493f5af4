"""Settings that are paths. In a TOML file, paths are relative to the file's folder; on the command line and in Python, to the working
directory.

A text that may be a name (on the hub, of a data source, of a plugin) is a path if it begins with ``./``, ``../``, ``/`` or ``~``, or if it
exists. Any other text stays unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from rlcore.config.section import Partial, PathKind
from rlcore.config.setting_table import alternatives, whole_type, without_bounds

__all__ = ["relocated", "seen_from"]


def seen_from(folder: str, text: str, kind: PathKind) -> str:
    """Return the setting's text, which is relative to ``folder``, as a path from the working directory ("" for ``folder``)."""
    path, colon, name = text.rpartition(":") if kind is PathKind.CODE else (text, "", "")
    if not path or (kind is PathKind.CODE and not path.endswith(".py")):
        return text
    # os.path, unlike Path, keeps "./" and does not raise if the text is not a path
    there = os.path.join(folder, os.path.expanduser(path.removeprefix("./") if folder else path))  # noqa: PTH111, PTH118
    certain = kind is PathKind.ALWAYS or path in (".", "..") or path.startswith(("./", "../", "/", "~"))
    return f"{there}{colon}{name}" if certain or os.path.exists(there) else text  # noqa: PTH110


def relocated(value: Any, annotation: Any, move: Callable[[str, PathKind], str], *, none: str | None = None) -> Any:
    """Move every path in a value that is not validated yet, of the given type (or of a whole configuration).

    The text ``none`` becomes None if the setting may be None."""
    if none is not None and value == none and type(None) in alternatives(annotation):
        return None
    for shape in alternatives(annotation):
        inner, parts = without_bounds(shape), get_args(without_bounds(shape))
        marks = getattr(shape, "__metadata__", ())
        kind = next((item for item in marks if isinstance(item, PathKind)), None)
        inner = next((item.section for item in marks if isinstance(item, Partial)), inner)
        if kind is not None and isinstance(value, str):
            return move(value, kind)
        if get_origin(inner) is tuple and isinstance(value, list):
            return [relocated(item, parts[0], move, none=none) for item in value]
        if get_origin(inner) is dict and isinstance(value, Mapping):
            return {key: relocated(item, parts[1], move, none=none) for key, item in value.items()}
        if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, Mapping):
            fields = inner.model_fields
            return {
                key: relocated(item, whole_type(fields[key]), move, none=none) if key in fields else item for key, item in value.items()
            }
    return value
