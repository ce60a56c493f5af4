"""The command ``env``: makes and finds the virtual environments that plugins describe by lock files."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore env``."""
    return [
        CommandSpec(
            name="env",
            target="rlcore_plugin_env.env_command:EnvCommand",
            summary="make the virtual environment of an engine or a trainer, and find it again",
            position=75,
        )
    ]
