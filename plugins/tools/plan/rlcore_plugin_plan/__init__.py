"""The command ``plan``: how to split devices between generating and training, by simulation. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore plan``."""
    return [
        CommandSpec(
            name="plan",
            target="rlcore_plugin_plan.plan_command:PlanCommand",
            summary="say how to split devices between generating and training, by simulation",
            position=60,
        )
    ]
