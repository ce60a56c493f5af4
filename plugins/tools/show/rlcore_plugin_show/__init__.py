"""The command ``show``: explains a plugin, and where each setting of a run comes from. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore show``."""
    return [
        CommandSpec(
            name="show",
            target="rlcore_plugin_show.show_command:ShowCommand",
            summary="explain a plugin, or where each setting of a run comes from",
            position=70,
        )
    ]
