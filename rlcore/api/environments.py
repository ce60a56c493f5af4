"""For authors of environments: programs that talk to the policy, for example with tools, for as long as an episode takes.

A plugin registers an ``EnvironmentSpec`` with ``rlcore_register_environments``. Its target is an ``Environment``: a class with ``play``, a
``TurnEnvironment`` with ``reset`` and ``step``, or a ``ProgramEnvironment``. A class in a file works as
``--environment ./game.py:Game``.
"""

from __future__ import annotations

from rlcore.contracts.environment import (
    ChosenEnvironment,
    Environment,
    EpisodeResult,
    Model,
    ProgramCommand,
    ProgramEnvironment,
    TurnEnvironment,
)
from rlcore.contracts.specs import EnvironmentSpec
from rlcore.registry.targets import environment_target

__all__ = [
    "ChosenEnvironment",
    "Environment",
    "EnvironmentSpec",
    "EpisodeResult",
    "Model",
    "ProgramCommand",
    "ProgramEnvironment",
    "TurnEnvironment",
    "environment_target",
]
