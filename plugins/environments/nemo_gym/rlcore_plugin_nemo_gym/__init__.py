"""Resources servers of NeMo Gym. This module only declares the environment."""

from __future__ import annotations

from rlcore.api import EnvironmentSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environment that plays with resources servers. It runs in the Python of the run: only the server needs nemo-gym."""
    return [
        EnvironmentSpec(
            name="nemo_gym",
            target="rlcore_plugin_nemo_gym.environment:NemoGym",
            config="rlcore_plugin_nemo_gym.options:NemoGymOptions",
            episodes_per_process=16,
            summary="Resources servers of NeMo Gym: their tools, and the reward of verify",
        )
    ]
