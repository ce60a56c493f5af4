"""Harbor's task folders. This module only declares the environment, which runs in a Python of its own."""

from __future__ import annotations

from typing import Any

from rlcore.api import EnvironmentSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environment that plays trials of Harbor."""
    return [
        EnvironmentSpec(
            name="harbor",
            target="rlcore_plugin_harbor.environment:Harbor",
            config="rlcore_plugin_harbor.options:HarborOptions",
            environment="harbor",
            summary="A task folder of Harbor, played by one of Harbor's agents in a session of the sandbox and graded by its tests",
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return what cannot work about a run with Harbor."""
    if config.sampling.environment.lower() != "harbor":
        return []
    found, options = [], config.sampling.options
    if options.get("sandbox"):
        found.append(
            "sampling.options.sandbox: the environment harbor starts a session for each episode itself, and cannot do so inside another "
            "one; leave it out, and set the limits in sampling.environment_options"
        )
    if options.get("episodes_per_process", 0) > 1:
        found.append("sampling.options.episodes_per_process: Harbor plays one trial in a process; leave it out, and raise workers")
    return found
