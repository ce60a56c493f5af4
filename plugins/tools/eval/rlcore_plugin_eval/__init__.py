"""The command ``eval``: the accuracy of a model on held-out tasks, without training. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore eval``."""
    return [
        CommandSpec(
            name="eval",
            target="rlcore_plugin_eval.eval_command:EvalCommand",
            summary="measure a model on held-out tasks, without training",
            position=38,
        )
    ]
