"""Facts that a plugin's spec and its class share, written once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from rlcore.contracts.specs import Spec

__all__ = ["FromSpec"]


class FromSpec:
    """Base of what specs offer. ``class Mine(Loss, spec=SPEC)`` takes the facts of ``SPEC`` that ``SPEC.on_class`` names.

    The spec is in the light entry module of the plugin, and the module of the class imports it. A class may state the facts itself
    instead, without ``spec``; a run refuses it if they differ from those of its spec.
    """

    _described_by: ClassVar[type[Spec]] = Spec

    def __init_subclass__(cls, *, spec: Spec | None = None, described_by: type[Spec] | None = None, **more: Any) -> None:
        """Set the attributes that differ from what the class inherits.

        Raise TypeError if the class states one of them, too, or inherits one that the spec leaves at its default.

        :param spec: of a plugin's class.
        :param described_by: of a base class, the specs of its kind.
        """
        super().__init_subclass__(**more)
        cls._described_by = described_by or cls._described_by
        if spec is None:
            return
        if not isinstance(spec, cls._described_by):
            given = f"the {type(spec).__name__} {spec.name!r}" if isinstance(spec, Spec) else repr(spec)
            raise TypeError(f"{cls.__name__} takes facts from {given}; spec must be a {cls._described_by.__name__}")
        defaults = {field.name: field.default for field in fields(spec)}
        for name in spec.on_class:
            if name in vars(cls):
                raise TypeError(f"{cls.__name__} states {name}, which it takes from its spec {spec.name!r}; leave it out of the class")
            inherited, fact = getattr(cls, name, defaults[name]), getattr(spec, name)
            if inherited != fact == defaults[name]:
                raise TypeError(
                    f"{cls.__name__} inherits {name} = {inherited!r}, and its spec {spec.name!r} leaves it at {fact!r}; "
                    f"write {name}={inherited!r} in the spec"
                )
            if inherited != fact:
                setattr(cls, name, fact)
