"""Fast pickling for records that travel between processes by the thousand: each becomes a tuple of its fields.

The default pickle of ``dataclass(frozen=True, slots=True)`` runs Python code for each field. That costs more than many a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

__all__ = ["pickled_by_fields"]

Record = TypeVar("Record")


def pickled_by_fields(cls: type[Record]) -> type[Record]:
    """Decorate a frozen dataclass that has slots and at least two fields.

    Unpickling does not repeat the checks of the constructor. A derived class is pickled as dataclasses usually are.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    values = attrgetter(*names)

    def reduce(self: Any, protocol: Any) -> Any:
        return (_filled, (cls, values(self))) if type(self) is cls else object.__reduce_ex__(self, protocol)

    cls.__reduce_ex__ = reduce  # type: ignore[method-assign]
    _SETTERS[cls] = [getattr(cls, name).__set__ for name in names]
    return cls


_SETTERS: dict[type, Sequence[Any]] = {}


def _filled(cls: type, values: Sequence[Any]) -> Any:
    record: Any = object.__new__(cls)
    for put, value in zip(_SETTERS[cls], values, strict=True):
        put(record, value)
    return record
