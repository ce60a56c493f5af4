"""The sandbox for untrusted programs on this machine. This module only declares it; workers import the code that builds the walls."""

from __future__ import annotations

from rlcore.api import SandboxSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_sandboxes() -> list[SandboxSpec]:
    """Register the sandbox ``local``, which uses the best level that the machine allows."""
    return [
        SandboxSpec(
            name="local",
            target="rlcore_plugin_sandbox.local_sandbox:open_local",
            config="rlcore_plugin_sandbox.options:LocalSandboxOptions",
            summary="Programs run on this machine: in namespaces made by bubblewrap, or behind Landlock and seccomp",
            levels=("namespaces", "landlock", "none"),
        )
    ]
