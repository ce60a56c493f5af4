"""For authors of environments: programs that talk to the policy, for example with tools, for as long as an episode takes.

A plugin registers an ``EnvironmentSpec`` with ``rlcore_register_environments``. Its target is an ``Environment``: a class with ``play``, a
``TurnEnvironment`` with ``reset`` and ``step``, or a ``Program``. A class in a file works as ``--environment ./game.py:Game``.
``docs/agents.md`` has an example of each.
"""

from __future__ import annotations

from rlcore.contracts.environment import (
    ChosenEnvironment,
    Environment,
    EpisodeOutcome,
    EpisodeResult,
    Model,
    Program,
    ProgramCommand,
    TurnEnvironment,
)
from rlcore.contracts.specs import EnvironmentSpec
from rlcore.registry.targets import environment_target

__all__ = [
    "ChosenEnvironment",
    "Environment",
    "EnvironmentSpec",
    "EpisodeOutcome",
    "EpisodeResult",
    "Model",
    "Program",
    "ProgramCommand",
    "TurnEnvironment",
    "environment_target",
]
