"""Types in the form that users read."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from rlcore.api.settings import without_bounds

__all__ = ["type_name"]


def type_name(annotation: Any) -> str:
    """Return a type as code: ``int | None`` instead of ``typing.Optional[int]``, the values of a Literal or an enum instead of its name."""
    inner = without_bounds(annotation)
    origin, parts = get_origin(inner), get_args(inner)
    if inner is None or inner is type(None):
        return "none"
    if origin is Literal:
        return " | ".join(repr(value) for value in parts)
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(part) for part in parts)
    if isinstance(inner, type) and issubclass(inner, Enum):
        return " | ".join(repr(member.value) for member in inner)
    if origin is not None:
        return f"{getattr(origin, '__name__', origin)}[{', '.join('…' if part is Ellipsis else type_name(part) for part in parts)}]"
    return getattr(inner, "__name__", str(inner))
