"""Metaclasses that limit ``dir`` and ``help`` of a class to the methods that it documents.

A record's docstring explains its fields, so ``help`` would print them twice, beside the methods that ``dataclass``, ``str`` or
``Exception`` define.
"""

from __future__ import annotations

from enum import EnumType
from types import MemberDescriptorType

__all__ = ["EnumMembers", "PublicMembers"]


class PublicMembers(type):
    """The metaclass of records, specs and errors."""

    def __dir__(cls) -> list[str]:
        inherited = {name for base in cls.__mro__ if base.__module__ == "builtins" for name in vars(base)}
        fields = {name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, MemberDescriptorType)}
        return [name for name in super().__dir__() if not name.startswith("_") and name not in inherited | fields]


class EnumMembers(PublicMembers, EnumType):
    """The metaclass of enums."""
