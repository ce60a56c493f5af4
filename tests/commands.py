"""The commands of an installation, for tests that go through all of them."""

from __future__ import annotations

from rlcore.registry.plugin_registry import Registry

__all__ = ["command_lines"]


def command_lines() -> dict[str, str]:
    """Command -> its line of help."""
    return {spec.name: spec.summary for spec in Registry.discover().specs("command")}
