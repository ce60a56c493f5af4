"""Environments of the package openenv. This module only declares the environment."""

from __future__ import annotations

from typing import Any

from rlcore.api import EnvironmentSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environment that plays on servers of OpenEnv."""
    return [
        EnvironmentSpec(
            name="openenv",
            target="rlcore_plugin_openenv.environment:OpenEnv",
            config="rlcore_plugin_openenv.options:OpenEnvOptions",
            environment="openenv",
            summary="Environments of the package openenv: a server with reset and step or tools, or an agent of its own",
        )
    ]


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """Return what the user should know about the sessions of a server that several processes share."""
    options = config.sampling.environment_options
    if config.sampling.environment.lower() != "openenv" or not getattr(options, "address", ""):
        return []
    return [
        f"openenv: the server {options.address} allows one session, unless its author raised max_concurrent_envs; "
        "further episodes wait for a session, and their deadline counts meanwhile"
    ]
