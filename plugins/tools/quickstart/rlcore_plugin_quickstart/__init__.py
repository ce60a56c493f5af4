"""The command ``quickstart``: it makes its task, model and data itself and downloads nothing. Importing this loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Return the spec of ``rlcore quickstart``."""
    return [
        CommandSpec(
            name="quickstart",
            target="rlcore_plugin_quickstart.quickstart_command:QuickstartCommand",
            summary="make a tiny model and watch it learn, on this machine",
            position=10,
        )
    ]
