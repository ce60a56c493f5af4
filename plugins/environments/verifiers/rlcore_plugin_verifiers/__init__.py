"""Environments of the package verifiers. This module only declares the environment; verifiers is installed in an environment of its own."""

from __future__ import annotations

from rlcore.api import EnvironmentSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environment that plays tasksets of verifiers."""
    return [
        EnvironmentSpec(
            name="verifiers",
            target="rlcore_plugin_verifiers.environment:Verifiers",
            config="rlcore_plugin_verifiers.options:VerifiersOptions",
            environment="verifiers",
            episodes_per_process=64,
            summary="Tasksets and environments of the package verifiers, by name or module",
        )
    ]
