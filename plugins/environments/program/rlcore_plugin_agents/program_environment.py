"""The environment ``program``."""

from __future__ import annotations

from rlcore.api.environments import ProgramCommand, ProgramEnvironment
from rlcore_plugin_agents.agent_options import ProgramOptions

__all__ = ["CommandEnvironment"]


class CommandEnvironment(ProgramEnvironment):
    """A command that the options name."""

    def __init__(self, options: ProgramOptions) -> None:
        self._options = options

    def command(self) -> ProgramCommand:
        """See ProgramEnvironment."""
        given = self._options
        return ProgramCommand(argv=given.command, env=given.env, cwd=given.cwd, python=given.python)
