"""Objects that plugins offer by a hook, and that have no kind."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.errors import UsageError
from rlcore.registry.discovery import why_unusable
from rlcore.registry.install import install_line
from rlcore.registry.known_plugins import known_offer
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.targets import load_target

__all__ = ["offered"]


def offered(hook: str, what: str, error: type[UsageError]) -> Any:
    """Return the object of the first plugin whose implementation of ``hook`` returns a target.

    :param what: needs the object, for messages.
    :raises UsageError: an ``error``, if no installed plugin offers one.
    """
    registry = Registry.discover()
    for owner, manager in registry.hooks():
        for target in getattr(manager.hook, hook)():
            return load_target(target, f"{hook} of {owner}: {target!r}")
    needed = known_offer(hook)
    why = why_unusable(needed, registry.rows) or f"which is not installed; type: {install_line(needed)}"
    raise error(f"{what} needs {needed}, {why}")
