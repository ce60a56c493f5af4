"""The commands ``score`` and ``audit``: rewards judge a file of completions, or hostile texts. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore score`` and ``rlcore audit``."""
    return [
        CommandSpec(
            name="score",
            target="rlcore_plugin_score.score_command:ScoreCommand",
            summary="judge a file of completions with a reward, without training",
            position=40,
        ),
        CommandSpec(
            name="audit",
            target="rlcore_plugin_score.audit_command:AuditCommand",
            summary="show a reward hostile and honest completions, and report what it makes of them",
            position=50,
        ),
    ]
